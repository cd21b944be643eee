"""Training from shards as the number of pairs grows: peak memory, seconds per step, start-up, recall of neighbours.

    python benchmarks/scale.py [--pairs 10000 100000 1000000] [--data features.npz] [--folder DIR] [--json FILE]

Each size is measured in a process of its own that trains from TFRecord shards as `cmimh_tf.train` does, for a limited
number of steps. Without --data, the pairs are clustered vectors of 1280 and 384 dimensions that vary in 64 directions;
with it, the rows of the file repeated with noise. 1,000,000 pairs need 14 GB of disk.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from report import Figure, add_json_flag, report

IMAGE_UNITS, TEXT_UNITS, FACTORS, CLUSTERS = 1280, 384, 64, 1000
PAIRS_PER_SHARD = 5000
RECALL_QUERIES = 300
ALTERNATIONS = 3
LARGEST_IN_MEMORY = 100_000


def main() -> None:
    """Parses the flags, measures each size, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], metavar="N")
    parser.add_argument("--data", type=Path, metavar="NPZ", help="pairs to repeat with noise, instead of made-up ones")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="for the files (default: a temporary folder)")
    parser.add_argument("--steps", type=int, default=60, metavar="N", help="steps to train and to time")
    add_json_flag(parser)
    arguments = parser.parse_args()
    measured: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for count in sorted(arguments.pairs):
            shards, vectors = Path(folder) / f"shards-{count}", Path(folder) / f"vectors-{count}"
            in_process(write_shards, shards, count, arguments.data)
            measured[count] = in_process(train_from_shards, shards, vectors, arguments.steps)
            measured[count] |= in_process(compare_paths, vectors, arguments.steps)
            print(f"{count:,} pairs: {json.dumps(measured[count])}", flush=True)
            for path in [*shards.rglob("*.tfrecord"), *vectors.rglob("*.npy")]:
                path.unlink()
    report(f"training from shards: {IMAGE_UNITS}-d and {TEXT_UNITS}-d", list(figures(measured)), arguments.json)


def figures(measured: dict[int, dict[str, float]]) -> Iterator[Figure]:
    """The figures of each size, and the peak memory of the largest size relative to the one before."""
    for count, values in measured.items():
        minutes = 15 if count == 1_000_000 else None
        yield Figure(f"peak_gb_{count}", values["peak_gb"], f"{count:,} pairs: peak memory", "GB", at_most=4.0)
        yield Figure(f"step_ms_{count}", 1000 * values["step"], f"{count:,} pairs: step, from files", "ms")
        for name, meaning, most in (("warm", "cached by the system", 1.1), ("cold", "not cached", None)):
            yield Figure(
                f"{name}_step_ratio_{count}",
                values[f"{name}_step_ratio"],
                f"{count:,} pairs: step from files, {meaning} / in memory",
                at_most=most,
            )
        for name in ("reading", "fingerprint", "scaling", "graph", "places"):
            yield Figure(f"{name}_us_{count}", 1e6 * values[name] / count, f"{count:,} pairs: {name} per pair", "us")
        for suffix, meaning, most in (("", "time", minutes), ("_processor", "processor time", minutes and 2 * minutes)):
            spent = (values[f"graph{suffix}"] + values[f"places{suffix}"]) / 60
            yield Figure(
                f"coordinates{suffix}_minutes_{count}", spent, f"{count:,} pairs: {meaning} of coordinates", "min", most
            )
        missed = 1.0 - values["recall"]
        yield Figure(f"missed_{count}", missed, f"{count:,} pairs: 1 - recall of the nearest landmarks", at_most=0.1)
    sizes = list(measured)
    before, largest = sizes[max(0, len(sizes) - 2)], sizes[-1]
    ratio = measured[largest]["peak_gb"] / measured[before]["peak_gb"]
    yield Figure("ratio", ratio, f"peak memory: {largest:,} / {before:,} pairs", at_most=1.3)


def in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls `function` in a new process, so that its peak memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def write_shards(folder: Path, count: int, data: Path | None) -> None:
    """Writes `count` pairs as `cmimh_tf.features` does."""
    import tensorflow as tf

    from cmimh_tf.data.readers.tfrecord import make_example

    folder.mkdir()
    make = repeated(data) if data else clustered()
    shards = -(-count // PAIRS_PER_SHARD)
    for shard in range(shards):
        rows = np.arange(shard * PAIRS_PER_SHARD, min(count, (shard + 1) * PAIRS_PER_SHARD))
        image, text = make(rows, np.random.default_rng([0, shard]))
        with tf.io.TFRecordWriter(str(folder / f"pairs-{shard:05d}-of-{shards:05d}.tfrecord")) as file:
            for row, *vectors in zip(rows.tolist(), image, text, strict=True):
                example = {"id": str(row), "image": vectors[0], "text": vectors[1]}
                file.write(make_example(example).SerializeToString())


Maker = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]


def clustered() -> Maker:
    """Pairs of clusters: nonlinear functions of 64 factors, with noise."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(CLUSTERS, FACTORS)).astype(np.float32)
    maps = [generator.normal(size=(FACTORS, units)).astype(np.float32) / 8 for units in (IMAGE_UNITS, TEXT_UNITS)]

    def make(rows: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        own = random.normal(size=(len(rows), FACTORS))
        factors = (centres[random.integers(CLUSTERS, size=len(rows))] + 0.7 * own).astype(np.float32)
        image, text = (np.tanh(factors @ one) for one in maps)
        noise = [0.2 * random.normal(size=values.shape).astype(np.float32) for values in (image, text)]
        return image + noise[0], text + noise[1]

    return make


def repeated(path: Path) -> Maker:
    """The rows of an .npz again and again, with noise of half the deviation of each column."""
    from cmimh_tf.data.npz import load_npz

    data = load_npz(path)
    deviations = [0.5 * values.std(axis=0) for values in (data.image, data.text)]

    def make(rows: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        found = [values[rows % len(data)] for values in (data.image, data.text)]
        image, text = (
            (values + deviation * random.normal(size=values.shape)).astype(np.float32)
            for values, deviation in zip(found, deviations, strict=True)
        )
        return image, text

    return make


def train_from_shards(shards: Path, folder: Path, steps: int) -> dict[str, float]:
    """Trains on all pairs from files, whatever their size; seconds of each part, peak memory and recall."""
    from cmimh_tf.command_line import start_tensorflow

    start_tensorflow()
    from cmimh_tf import stored_rows
    from cmimh_tf.command_line import load_data
    from cmimh_tf.config import NeighbourhoodConfig
    from cmimh_tf.training import neighbourhood

    stored_rows.IN_MEMORY_BYTES = 0
    values: dict[str, float] = {}
    with Timer(values, "reading"):
        data = load_data(str(shards), 0, folder)
    # As a training does: the pairs of a split are in random order.
    data = data.take(np.random.default_rng(0).permutation(len(data)))
    with Timer(values, "fingerprint"):
        data.fingerprint()
    model = make_model(data.image.shape[1], data.text.shape[1])
    with Timer(values, "scaling"):
        model.adapt(data.image, data.text)
    with Timer(values, "graph"):
        coordinates = neighbourhood.Coordinates(data.image, data.text, NeighbourhoodConfig())
    with Timer(values, "places"):
        blocks = ({"coordinates": block} for block in coordinates.blocks())
        targets = stored_rows.store_rows(folder / "coordinates", blocks)
    values["step"] = seconds_per_step(model, {"image": data.image, "text": data.text, **targets}, steps)
    values["peak_gb"] = peak_gigabytes()
    values["recall"] = recall(coordinates)
    return values


def compare_paths(folder: Path, steps: int) -> dict[str, float]:
    """Seconds per step from files relative to arrays of at most 100,000 of the pairs, alternating in one process."""
    from cmimh_tf.command_line import start_tensorflow

    start_tensorflow()
    from cmimh_tf.stored_rows import open_rows

    vectors = next(path for path in folder.iterdir() if (path / "image.npy").exists())
    rows = {**open_rows(vectors), **open_rows(folder / "coordinates")}
    stored = {name: rows[name] for name in ("image", "text", "coordinates")}
    arrays = {name: values[:LARGEST_IN_MEMORY] for name, values in stored.items()}
    model = make_model(arrays["image"].shape[1], arrays["text"].shape[1])
    model.adapt(arrays["image"], arrays["text"])
    seconds: dict[str, list[float]] = {"memory": [], "cold": [], "warm": []}
    for _ in range(ALTERNATIONS):
        seconds["memory"].append(seconds_per_step(model, arrays, steps))
        drop_from_cache([*vectors.iterdir(), *(folder / "coordinates").iterdir()])
        seconds["cold"].append(seconds_per_step(model, stored, steps))
        # The same order of pairs, so the same rows.
        seconds["warm"].append(seconds_per_step(model, stored, steps))
    ratios = {
        f"{name}_step_ratio": float(np.median(np.divide(seconds[name], seconds["memory"]))) for name in ("cold", "warm")
    }
    return {**ratios, "step_in_memory": float(np.median(seconds["memory"]))}


def drop_from_cache(paths: list[Path]) -> None:
    """Has the system forget the content of files, so that the next reads go to the disk."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Timer:
    """Stores under a name: the seconds of its block, those of all processors, and the peak memory after it."""

    def __init__(self, values: dict[str, float], name: str):
        self.values, self.name = values, name

    def __enter__(self) -> None:
        self.started, self.processor_started = time.perf_counter(), time.process_time()

    def __exit__(self, *error: object) -> None:
        self.values[self.name] = time.perf_counter() - self.started
        self.values[f"{self.name}_processor"] = time.process_time() - self.processor_started
        self.values[f"{self.name}_peak_gb"] = peak_gigabytes()


def make_model(image_units: int, text_units: int) -> Any:
    """The default model, compiled."""
    from cmimh_tf.config import get_preset
    from cmimh_tf.model import CMIMH

    model = CMIMH(32, config=get_preset("default"), image_units=image_units, text_units=text_units)
    model.compile()
    return model


def seconds_per_step(model: Any, columns: dict[str, Any], steps: int) -> float:
    """Mean seconds of the steps of one `fit` after the first ten."""
    import keras

    times: list[float] = []
    clock = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: times.append(time.perf_counter()))
    model.fit(columns, epochs=1, steps_per_epoch=steps, callbacks=[clock], verbose=0)
    return (times[-1] - times[9]) / (len(times) - 10)


def peak_gigabytes() -> float:
    """The largest resident memory of this process so far."""
    status = Path("/proc/self/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) / 1e6


def recall(coordinates: Any) -> float:
    """The share of the nearest landmarks, by the full vectors, that the search by reduced vectors finds."""
    if coordinates.index is None:
        return 1.0
    joint, landmarks = coordinates.joint, coordinates.landmarks
    rows = np.arange(0, len(joint), max(1, len(joint) // RECALL_QUERIES))
    queries = joint[rows]
    similarity = np.hstack([queries @ joint[part].T for part in np.array_split(landmarks, 50)])
    exact = np.argpartition(-similarity, coordinates.count, axis=1)[:, : coordinates.count]
    found = coordinates.nearest_landmarks(queries)
    return float(np.mean([np.isin(one, other).mean() for one, other in zip(exact, found, strict=True)]))


if __name__ == "__main__":
    main()
