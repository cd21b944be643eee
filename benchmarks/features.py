"""The speed of computing features of picture files, relative to the same network on tensors in memory.

    python benchmarks/features.py [--features NAME] [--data pairs.csv] [--json FILE]

The pictures are 256x256 JPEGs of smooth noise, or those of `--data`. They are decoded by other threads while the
network computes. The bare network gets batches of the same size that are already in memory. Both alternate in one
process, so that other load on the machine slows down both.
"""

import argparse
import csv
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from report import Figure, add_json_flag, report

LEAST_RATIO = 0.8
PICTURE_SIZE = 256


def main() -> None:
    """Parses the flags, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--features", default="efficientnet_lite0", metavar="NAME", help="features of pictures (default: %(default)s)"
    )
    parser.add_argument(
        "--data", type=Path, metavar="CSV", help="a table with a column `image` (default: smooth noise)"
    )
    parser.add_argument("--pictures", type=int, default=512, metavar="N", help="pictures per repetition")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="number of repetitions")
    add_json_flag(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = (
            table_paths(arguments.data, arguments.pictures)
            if arguments.data
            else write_pictures(Path(folder), arguments.pictures)
        )
        from_files, bare = make_runs(arguments.features, paths)
        times = [(seconds_of(from_files), seconds_of(bare)) for _ in range(arguments.repeats)]
    files_seconds, bare_seconds = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(b / a for a, b in times)
    report(
        f"features of {len(paths)} picture files, {arguments.features}",
        [
            Figure("from_files", len(paths) / files_seconds, "from files", "pictures/s"),
            Figure("bare", len(paths) / bare_seconds, "the network alone, on ready tensors", "pictures/s"),
            Figure("ratio", ratio, f"from files / alone; should be at least {LEAST_RATIO}"),
        ],
        arguments.json,
    )


def make_runs(name: str, paths: Sequence[Path]) -> tuple[Callable[[], object], Callable[[], object]]:
    """Two functions, both warmed up: features of the files, and the network alone on tensors of the same pictures."""
    import tensorflow as tf

    from cmimh_tf.features import make_image_features
    from cmimh_tf.features.compute import IMAGE_BATCH, VectorComputer

    features = make_image_features(name)
    computer = VectorComputer(features)

    def pictures() -> Iterator[bytes]:
        return (path.read_bytes() for path in paths)

    prepared = [features.prepare(picture) for picture in pictures()]
    batches = [tf.stack(prepared[start : start + IMAGE_BATCH]) for start in range(0, len(prepared), IMAGE_BATCH)]
    network = features.network if features.network is not None else features.vectors
    compiled = tf.function(network, reduce_retracing=True)

    def from_files() -> None:
        for _ in computer.images(pictures()):
            pass

    def bare() -> None:
        for batch in batches:
            compiled(batch).numpy()

    from_files()
    bare()
    return from_files, bare


def write_pictures(folder: Path, count: int) -> list[Path]:
    """Writes JPEGs of smooth noise, which compress like photographs."""
    import tensorflow as tf

    paths = []
    for number in range(count):
        coarse = tf.random.stateless_uniform([1, 32, 32, 3], [number, 0], 0, 255)
        fine = tf.random.stateless_uniform([1, PICTURE_SIZE, PICTURE_SIZE, 3], [number, 1], -12, 12)
        picture = tf.image.resize(coarse, [PICTURE_SIZE, PICTURE_SIZE], "bicubic") + fine
        encoded = tf.io.encode_jpeg(tf.cast(tf.clip_by_value(picture, 0, 255), tf.uint8)[0], quality=90)
        paths.append(folder / f"{number}.jpg")
        paths[-1].write_bytes(encoded.numpy())
    return paths


def table_paths(table: Path, count: int) -> list[Path]:
    """The first pictures of a table."""
    with table.open(encoding="utf-8-sig", newline="") as file:
        return [table.parent / row["image"] for row in csv.DictReader(file)][:count]


def seconds_of(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
