"""Everything that a command leaves on disk and another one reads: small examples, and the commands that read them.

`ARTIFACTS` has one function per artifact. It makes the files once and returns a `Target`: the files that may be
damaged, the command that a user would run next, and what that command must result in.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from cmimh_tf.data.npz import save_npz
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.data.synthetic import make_synthetic
from tests.faults.commands import CommandWorker, Outcome

NUM_PAIRS = 160
SMALL = [
    "--preset", "smoke", "--epochs", "2", "--set", "network.hidden_units=[8]", "--set", "network.critic_units=[4]",
    "--set", "network.critic_embedding_units=4", "--set", "training.validation_share=0.2",
    "--set", "neighbourhood.landmarks=8",
]  # fmt: skip
# Every matrix counts as too large for memory.
STORED = {"cmimh_tf.stored_rows.IN_MEMORY_BYTES": 1}


@dataclass
class Target:
    """An artifact that may be damaged.

    Attributes:
        name: of the artifact.
        folder: where it is.
        files: the names of its files below `folder`, which are damaged.
        module, arguments: the command that reads it.
        result: what the command has made, to compare.
        settings: values of modules to change for the command.
        others: names of files that may be exchanged with one of `files`.
    """

    name: str
    folder: Path
    files: list[str]
    module: str
    arguments: list[str]
    result: Callable[[], Any]
    settings: dict[str, Any] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    expected: Any = None

    @property
    def pristine(self) -> Path:
        """A copy that is never damaged."""
        return self.folder.with_name(f"{self.folder.name}.pristine")

    def keep(self, worker: CommandWorker) -> None:
        """Keeps a copy of the files as they are, and what the command results in."""
        shutil.rmtree(self.pristine, ignore_errors=True)
        shutil.copytree(self.folder, self.pristine)
        outcome = self.run(worker)
        if outcome.status != 0:
            raise RuntimeError(f"{self.name}: the command fails without any fault: {outcome}")
        self.expected = self.result()

    def restore(self) -> None:
        """Puts the copy in place of the files."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.pristine, self.folder)

    def run(self, worker: CommandWorker) -> Outcome:
        """Runs the command."""
        return worker.run(self.module, self.arguments, self.settings)


class World:
    """A folder with small data, models and everything made of them. Each is made when it is first asked for."""

    def __init__(self, folder: Path, worker: CommandWorker):
        self.folder, self.worker = folder, worker

    def make(self, module: str, *arguments: Any, settings: dict[str, Any] | None = None) -> None:
        """Runs a command that must succeed."""
        outcome = self.worker.run(module, list(map(str, arguments)), settings)
        if outcome.status != 0:
            raise RuntimeError(f"{module} {arguments} failed: {outcome.output}{outcome.error}")

    def clean(self, name: str) -> Path:
        """An empty path for what a command writes."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
        return path

    @cached_property
    def pairs(self) -> PairedData:
        made = make_synthetic(NUM_PAIRS, seed=0, image_dim=24, text_dim=16)
        captions = np.array([f"caption {row}" for row in range(NUM_PAIRS)])
        ids = np.array([f"pair-{row}" for row in range(NUM_PAIRS)])
        return PairedData(made.image, made.text, made.labels, ids=ids, captions=captions)

    @cached_property
    def data(self) -> Path:
        path = self.folder / "data" / "pairs.npz"
        save_npz(path, self.pairs)
        return path

    def train(self, name: str, *flags: str, settings: dict[str, Any] | None = None) -> list[str]:
        """Trains into a folder; returns the arguments."""
        arguments = ["--data", str(self.data), *SMALL, "--out", str(self.folder / name), *flags]
        self.make("cmimh_tf.train", *arguments, settings=settings)
        return arguments

    @cached_property
    def run(self) -> Path:
        self.train("run")
        return self.folder / "run"

    @cached_property
    def versions(self) -> Path:
        """A folder of two exported models."""
        self.train("other_run", "--seed", "1")
        for run in (self.run, self.folder / "other_run"):
            self.make("serving.push", "--model", run, "--model-base", self.folder / "versions")
        return self.folder / "versions"


def names_below(folder: Path, *patterns: str) -> list[str]:
    """The files that match one of the patterns."""
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    names = sorted(str(path.relative_to(folder)) for path in found if path.is_file() and path.name != ".lock")
    assert names, (folder, patterns)
    return names


def arrays(path: Path) -> dict[str, list[Any]]:
    """The arrays of an .npz file."""
    with np.load(path) as archive:
        return {name: archive[name].tolist() for name in archive.files}


def without_times(value: Any) -> Any:
    """JSON values without those that measure time."""
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if "seconds" not in key and "cost" not in key}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def measured(run: Path) -> Any:
    """The weights and measures of a run."""
    with zipfile.ZipFile(run / "model.keras") as archive:
        weights = [archive.read(name) for name in ("config.json", "model.weights.h5")]
    return weights, read_json(run / "metrics.json"), read_json(run / "code_profile.json")


def trained(run: Path) -> Any:
    """The weights, measures and history of a run."""
    return measured(run), (run / "history.csv").read_text(encoding="utf-8")


def indexed(address: Path) -> list[Any]:
    """All items of an index with their codes."""
    from cmimh_tf.search.api import open_index

    with open_index(address) as index:
        items = index.get([f"pair-{row}" for row in range(NUM_PAIRS)])
    return [(item.id, item.codes, item.caption, item.metadata) if item else None for item in items]


def hash_with_run(world: World) -> Target:
    """A finished run, read by `cmimh hash`."""
    out = world.folder / "hashed.npz"
    world.train("run_to_hash")
    world.train("run_to_hash_2", "--seed", "1")
    folder = world.folder / "runs_to_hash"
    folder.mkdir()
    for name in ("run_to_hash", "run_to_hash_2"):
        (world.folder / name).rename(folder / name)
    files = names_below(folder, "run_to_hash/*", "run_to_hash/checkpoints/*")
    # The files that matter, more often.
    files += 8 * ["run_to_hash/model.keras"]
    arguments = ["--model", folder / "run_to_hash", "--data", world.data, "--out", out]
    return Target(
        "run: hash", folder, files, "cmimh_tf.hash", list(map(str, arguments)), lambda: arrays(out),
        others=["run_to_hash_2/model.keras", "run_to_hash_2/config.json"],
    )  # fmt: skip


def evaluate_run(world: World) -> Target:
    """A finished run, read by `cmimh evaluate`."""
    out = world.folder / "evaluated.json"
    world.train("run_to_evaluate", "--queries", "13")
    folder = world.folder / "run_to_evaluate"
    files = names_below(folder, "*.keras", "*.json", "*.csv")
    arguments = ["--model", str(folder), "--data", str(world.data), "--json", str(out)]
    return Target("run: evaluate", folder, files, "cmimh_tf.evaluate", arguments, lambda: read_json(out))


def finished_run(world: World) -> Target:
    """A finished run, given to `cmimh train` again."""
    arguments = world.train("finished_run")
    folder = world.folder / "finished_run"
    files = names_below(folder, "*.keras", "*.json", "*.csv", "checkpoints/*")
    # Without the history, which is for the user to look at.
    return Target("run: train again", folder, files, "cmimh_tf.train", arguments, lambda: measured(folder))


def stopped_run(world: World) -> Target:
    """A training that was killed after its first epoch, to be continued; vectors and neighbours are in files."""
    arguments = world.train("stopped_run", settings=STORED)
    folder = world.folder / "stopped_run"
    expected = trained(folder)
    shutil.rmtree(folder)
    # The same training with an error at the end of the second epoch.
    stop = {"stopping.EPOCH": 2}
    outcome = world.worker.run("stopping", arguments, {**STORED, **stop})
    assert outcome.status != 0, outcome
    files = names_below(folder, "*.json", "*.csv", "checkpoints/**/*", "vectors/**/*")
    files += [name for name in files if "ckpt" in name or name.endswith(".npy")]

    def result() -> Any:
        assert trained(folder) == expected
        return expected

    return Target("stopped run: train", folder, files, "cmimh_tf.train", arguments, result, STORED)


def push_run(world: World) -> Target:
    """A finished run, exported by `cmimh push`."""
    world.train("run_to_push")
    folder, base = world.folder / "run_to_push", world.folder / "pushed"
    arguments = ["--model", str(folder), "--model-base", str(base)]

    def result() -> Any:
        pushed = [(base / "1" / "assets.extra" / name).read_text() for name in ("metrics.json", "code_profile.json")]
        return pushed, served_codes(world, base)

    return Target("run: push", folder, names_below(folder, "*.keras", "*.json"), "serving.push", arguments, result)


def served_codes(world: World, base: Path) -> Any:
    """The codes of the newest version, which is removed."""
    versions = sorted((path for path in base.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    for older in versions[:-1]:
        shutil.rmtree(older)
    outcome = world.worker.run("serve_once", ["--model-base", str(base), "--data", str(world.data)])
    shutil.rmtree(base)
    assert outcome.status == 0, outcome
    return outcome.output


def exported_model(world: World) -> Target:
    """An exported model, loaded by the server."""
    folder = world.folder / "served"
    shutil.copytree(world.versions, folder)
    shutil.copytree(folder / "1", folder / "other" / "1")
    shutil.rmtree(folder / "1")
    (folder / "2").rename(folder / "1")
    arguments = ["--model-base", str(folder), "--data", str(world.data), "--out", str(world.folder / "served.json")]
    return Target(
        "export: server", folder, names_below(folder, "1/**/*"), "serve_once", arguments,
        lambda: read_json(world.folder / "served.json"), others=names_below(folder, "other/1/**/*"),
    )  # fmt: skip


def indexed_export(world: World) -> Target:
    """An exported model, read by `cmimh index build`."""
    folder, out = world.folder / "export_to_index", world.folder / "index_of_export"
    shutil.copytree(world.versions / "1", folder)
    return Target(
        "export: index build", folder, names_below(folder, "**/*"), "cmimh_tf.index",
        ["build", "--model", str(folder), "--data", str(world.data), "--out", str(out)],
        lambda: taken(out, indexed),
    )  # fmt: skip


def taken(path: Path, read: Callable[[Path], Any]) -> Any:
    """What `read` returns for a path, which is removed."""
    found = read(path)
    shutil.rmtree(path)
    return found


def data_file(world: World) -> Target:
    """An .npz of vectors, read by `cmimh hash`."""
    folder, out = world.folder / "data_to_hash", world.folder / "hashed_data.npz"
    save_npz(folder / "pairs.npz", world.pairs)
    arguments = ["--model", str(world.run), "--data", str(folder / "pairs.npz"), "--out", str(out)]
    return Target("npz: hash", folder, ["pairs.npz"], "cmimh_tf.hash", arguments, lambda: arrays(out))


def training_data(world: World) -> Target:
    """An .npz of vectors, read by `cmimh train`."""
    folder, out = world.folder / "data_to_train", world.folder / "run_of_data"
    save_npz(folder / "pairs.npz", world.pairs)
    arguments = ["--data", str(folder / "pairs.npz"), *SMALL, "--epochs", "1", "--out", str(out), "--overwrite"]
    return Target("npz: train", folder, ["pairs.npz"], "cmimh_tf.train", arguments, lambda: trained(out))


def codes_file(world: World) -> Target:
    """An .npz of codes, read by `cmimh index build`."""
    folder, out = world.folder / "codes", world.folder / "index_of_codes"
    world.make("cmimh_tf.hash", "--model", world.run, "--data", world.data, "--out", folder / "codes.npz")
    arguments = ["build", "--codes", str(folder / "codes.npz"), "--out", str(out)]
    return Target("codes: index build", folder, ["codes.npz"], "cmimh_tf.index", arguments, lambda: taken(out, indexed))


def shards(world: World) -> Target:
    """A folder of TFRecord shards, read by `cmimh hash`."""
    folder, out = world.folder / "shards", world.folder / "hashed_shards.npz"
    make_shards(world, folder)
    arguments = ["--model", str(world.run), "--data", str(folder), "--out", str(out)]
    return Target("shards: hash", folder, names_below(folder, "*"), "cmimh_tf.hash", arguments, lambda: arrays(out))


def stopped_shards(world: World) -> Target:
    """A folder of TFRecord shards without the last one, to be completed by `cmimh features`."""
    folder = world.folder / "stopped_shards"
    arguments = make_shards(world, folder)
    max(folder.glob("*.tfrecord")).unlink()

    def result() -> Any:
        return {path.name: path.read_bytes() for path in folder.glob("pairs*")}

    return Target("shards: features", folder, names_below(folder, "*"), "cmimh_tf.features", arguments, result)


def make_shards(world: World, folder: Path) -> list[str]:
    arguments = ["--data", str(world.data), "--out", str(folder), "--pairs-per-shard", "40"]
    world.make("cmimh_tf.features", *arguments)
    return arguments


def search_index(world: World) -> Target:
    """An index, read by `cmimh search`."""
    folder, queries = world.folder / "index", world.folder / "queries.npy"
    world.make("cmimh_tf.index", "build", "--model", world.run, "--data", world.data, "--out", folder)
    world.make("cmimh_tf.index", "remove", "--index", folder, "--ids", *[f"pair-{row}" for row in range(5, 30)])
    np.save(queries, np.random.default_rng(0).integers(0, 256, (20, 2), np.uint8))
    return Target(
        "index: search", folder, names_below(folder, "**/*"), "search_once",
        ["--index", str(folder), "--codes", str(queries), "--top", "200", "--where", "id != 'x'", "--json"],
        lambda: (folder.parent / "found.json").read_text(),
    )  # fmt: skip


def grown_index(world: World) -> Target:
    """An index, to which `cmimh index add` adds."""
    folder = world.folder / "index_to_grow"
    half = world.folder / "half.npz"
    save_npz(half, world.pairs.take(np.arange(NUM_PAIRS // 2)))
    world.make("cmimh_tf.index", "build", "--model", world.run, "--data", half, "--out", folder)
    arguments = ["add", "--index", str(folder), "--data", str(world.data)]
    return Target(
        "index: add", folder, names_below(folder, "**/*"), "cmimh_tf.index", arguments, lambda: indexed(folder)
    )


def parquet_vectors(world: World) -> Target:
    """Parquet parts of vectors, as Spark writes them, read by `cmimh hash`."""
    from cmimh_tf.spark.features import compute_features

    folder, out = world.folder / "parts", world.folder / "hashed_parts.npz"
    with without_spark() as cluster:
        compute_features(
            str(world.data), folder, cluster, image_features="descriptor", text_features="minilm", pairs_per_shard=40
        )
    arguments = ["--model", str(world.run), "--data", str(folder), "--out", str(out)]
    return Target(
        "Parquet vectors: hash", folder, names_below(folder, "*"), "cmimh_tf.hash", arguments, lambda: arrays(out)
    )


def parquet_codes(world: World) -> Target:
    """Parquet parts of codes, as Spark writes them, read by `cmimh spark load`."""
    from cmimh_tf.spark.hashing import compute_codes

    folder, out = world.folder / "code_parts", world.folder / "index_of_parts"
    with without_spark() as cluster:
        compute_codes(str(world.run), str(world.data), folder, cluster, pairs_per_part=40)
    arguments = ["load", "--codes", str(folder), "--index", str(out)]
    return Target(
        "Parquet codes: load", folder, names_below(folder, "*"), "cmimh_tf.spark", arguments,
        lambda: taken(out, indexed),
    )  # fmt: skip


@contextlib.contextmanager
def without_spark() -> Iterator[Any]:
    """Runs the tasks for Spark in this process, without Java: the files are the same."""
    from cmimh_tf.spark import parts

    def run_here(context: Any, task: Callable[[Any], int], items: Any, bar: Any) -> None:
        for item in items:
            task(item)

    kept, parts.run_tasks = parts.run_tasks, run_here
    try:
        yield SimpleNamespace(context=contextlib.nullcontext)
    finally:
        parts.run_tasks = kept


def weight_search(world: World) -> Target:
    """A search with one trial, continued to two by `cmimh tune`."""
    folder = world.folder / "search"
    arguments = ["--data", str(world.data), *SMALL, "--out", str(folder), "--trials"]
    world.make("tuner.search", *arguments, "1")
    files = names_below(folder, "*.json", "*.csv", "trials/**/*")

    def result() -> Any:
        return read_json(folder / "best.json"), without_times(read_json(folder / "result.json"))

    return Target("search: tune", folder, files, "tuner.search", [*arguments, "2"], result)


def best_weights(world: World) -> Target:
    """The result of a search, read by `cmimh train`."""
    folder, out = world.folder / "finished_search", world.folder / "tuned_run"
    world.make("tuner.search", "--data", world.data, *SMALL, "--out", folder, "--trials", "1")
    arguments = [
        "--data",
        str(world.data),
        *SMALL,
        "--set",
        f"@{folder / 'best.json'}",
        "--out",
        str(out),
        "--overwrite",
    ]
    return Target("search: train", folder, ["best.json"], "cmimh_tf.train", arguments, lambda: trained(out))


def experiment_cells(world: World) -> Target:
    """The measured cells of an experiment, read by `cmimh experiments`."""
    folder = world.folder / "experiment"
    arguments = [
        "main", "--data", str(world.data), "--out", str(folder), "--methods", "CVH", "ACQ", "--bits", "8", "16",
        "--seeds", "1", "--jobs", "1",
    ]  # fmt: skip
    world.make("cmimh_tf.experiments", *arguments)
    files = names_below(folder, "cells/*.json")

    def result() -> Any:
        return [without_times(read_json(path)) for path in sorted(folder.rglob("results.json"))]

    return Target("cells: experiments", folder, files, "cmimh_tf.experiments", arguments, result)


def pipeline_root(world: World) -> Target:
    """The root of a pipeline, in which the model is evaluated and pushed again."""
    folder = world.folder / "root"
    # Long enough for a model that is pushed.
    arguments = ["--data", str(world.data), "--preset", "smoke", "--epochs", "10", "--root", str(folder)]
    world.make("pipeline.run_local", *arguments)
    files = names_below(folder, "artifacts/**/*", "index/**/*", "serving_model/**/*", "data.json", "checksums/*")
    files = [name for name in files if "/.system/" not in name]

    def result() -> Any:
        newest = max((folder / "serving_model" / "cmimh").iterdir(), key=lambda path: int(path.name))
        metrics = read_json(newest / "assets.extra" / "metrics.json")
        return metrics, indexed(folder / "index")

    return Target("pipeline: run again", folder, files, "pipeline.run_local", [*arguments, "--max-drop", "1.5"], result)


# Each with its share of the faults: those whose commands take long have less.
ARTIFACTS: dict[Callable[[World], Target], int] = {
    hash_with_run: 10,
    evaluate_run: 5,
    finished_run: 5,
    stopped_run: 6,
    push_run: 4,
    exported_model: 12,
    indexed_export: 8,
    data_file: 8,
    training_data: 3,
    codes_file: 8,
    shards: 8,
    stopped_shards: 5,
    search_index: 12,
    grown_index: 8,
    parquet_vectors: 5,
    parquet_codes: 6,
    weight_search: 3,
    best_weights: 1,
    experiment_cells: 5,
    pipeline_root: 3,
}
