"""Searching an embedded index relative to `faiss.IndexBinaryFlat` on the same codes, and what opening and adding cost.

    python benchmarks/search.py [--json FILE] [--large 0]

Codes of 64 bits in clusters. Both search the same queries in turn, with all processors; the index also gives the ids of
the results. The last part needs 10,000,000 codes, some minutes and 3 GB: --large 0 leaves it out.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from report import Figure, add_json_flag, report

CODE_LENGTH = 64
BATCH = 64
LARGEST_RATIO = 1.2
LARGEST_SINGLE_RATIO = 1.5
SECONDS_TO_OPEN = 2.0
SECONDS_PER_100_000 = 1.0
LARGEST_LOSS = 0.01
LARGEST_SHARE = 1 / 20


def main() -> None:
    """Parses the flags, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000], metavar="N")
    parser.add_argument(
        "--large", type=int, default=10_000_000, metavar="N", help="codes of the inverted file; 0: none"
    )
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="alternations of the two")
    add_json_flag(parser)
    arguments = parser.parse_args()

    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        batches, singles = [], []
        for rows in arguments.rows:
            path = Path(folder) / f"{rows}"
            codes = clustered_codes(rows)
            adding = build(path, codes)
            for top in (10, 1000):
                batch, single = compare(path, codes, top, arguments.repeats)
                batches.append(batch)
                singles.append(single)
                name = f"{rows // 1000}k_top{top}"
                figures.append(Figure(f"batch_{name}", batch, f"{rows:,} codes, k = {top}, batches of {BATCH}"))
                figures.append(Figure(f"single_{name}", single, f"{rows:,} codes, k = {top}, single queries"))
        opening, memory = open_in_new_process(path)
        figures += [
            Figure("open", opening, f"opening {rows:,} items", "s", SECONDS_TO_OPEN),
            Figure("add", adding / rows * 100_000, "adding 100,000 items from ready codes", "s", SECONDS_PER_100_000),
            Figure("memory", memory / rows, f"memory per item, {CODE_LENGTH} bits on both sides", "bytes"),
            Figure("single_ratio", max(singles), "largest of single queries", at_most=LARGEST_SINGLE_RATIO),
        ]
        if arguments.large:
            figures += measure_inverted_file(Path(folder) / "large", arguments.large)
        figures.append(Figure("ratio", max(batches), "largest of the batches: index / faiss", at_most=LARGEST_RATIO))
    report(f"searching codes of {CODE_LENGTH} bits, time relative to faiss.IndexBinaryFlat", figures, arguments.json)


def clustered_codes(rows: int, seed: int = 0, clusters: int = 5000) -> np.ndarray:
    """uint8 [rows, 8]: each code is a centre with a tenth of its bits flipped."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(1234).integers(0, 2, (clusters, CODE_LENGTH), dtype=np.uint8)
    codes = np.empty((rows, CODE_LENGTH // 8), np.uint8)
    for start in range(0, rows, 100_000):
        count = min(100_000, rows - start)
        flips = random.random((count, CODE_LENGTH), np.float32) < 0.1
        bits = centres[random.integers(0, clusters, count)] ^ flips
        codes[start : start + count] = np.packbits(bits, axis=1, bitorder="little")
    return codes


def build(path: Path, codes: np.ndarray, **options: object) -> float:
    """Adds codes on both sides to a new index; returns the seconds."""
    from cmimh_tf.search import create_index

    ids = [f"item-{row:08d}" for row in range(len(codes))]
    with create_index(path, code_length=CODE_LENGTH, **options) as index:
        return seconds(lambda: index.add_codes(ids, image_codes=codes, text_codes=codes[::-1]))


def compare(path: Path, codes: np.ndarray, top: int, repeats: int) -> tuple[float, float]:
    """Median ratios of index to faiss, for batches and for single queries."""
    import faiss

    from cmimh_tf.search import open_index

    queries = clustered_codes(BATCH, seed=1)
    flat = faiss.IndexBinaryFlat(CODE_LENGTH)
    flat.add(codes)
    with open_index(path, search="exact") as index:
        expected_distances, expected = flat.search(queries, top)
        found = index.search_codes(queries, top=top)
        assert np.array_equal(found.rows - 1, expected)
        assert np.array_equal(found.distances, expected_distances)
        singles = [queries[row : row + 1] for row in range(16)]

        def one_by_one(search: Callable[[np.ndarray], object]) -> None:
            for query in singles:
                search(query)

        def search(batch: np.ndarray) -> object:
            return index.search_codes(batch, top=top).ids

        def search_flat(batch: np.ndarray) -> object:
            return flat.search(batch, top)

        batch = [(seconds(lambda: search(queries)), seconds(lambda: search_flat(queries))) for _ in range(repeats)]
        single = [(seconds(lambda: one_by_one(search)), seconds(lambda: one_by_one(search_flat))) for _ in batch]
    medians = [statistics.median(ours / theirs for ours, theirs in times) for times in (batch, single)]
    return medians[0], medians[1]


def open_in_new_process(path: Path) -> tuple[float, float]:
    """Seconds to open an index in a fresh process, and the bytes that the process grew by."""
    code = (
        "import resource, sys, time\n"
        "import faiss, numpy\n"
        "from cmimh_tf.search.api import open_index\n"
        "def used():\n"
        "    with open('/proc/self/statm') as file: return int(file.read().split()[1]) * resource.getpagesize()\n"
        "before, started = used(), time.perf_counter()\n"
        "index = open_index(sys.argv[1])\n"
        "print(time.perf_counter() - started, used(), before)\n"
    )
    runs = []
    for _ in range(3):
        output = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
        opening, after, before = map(float, output.split())
        runs.append((opening, after - before))
    return min(runs)[0], min(memory for _, memory in runs)


def measure_inverted_file(path: Path, rows: int) -> list[Figure]:
    """Recall and speed of an index that is large enough for an inverted file."""
    import faiss

    from cmimh_tf.search import open_index

    codes = clustered_codes(rows)
    queries = clustered_codes(256, seed=1)
    building = build(path, codes, search="ivf")
    with open_index(path, search="ivf") as index:
        index.search_codes(queries[:2], top=10)
        started = time.perf_counter()
        found = index.search_codes(queries, top=10)
        ours = time.perf_counter() - started
        started = time.perf_counter()
        exact = index.search_codes(queries, top=10, exact=True)
        own_exact = time.perf_counter() - started
    flat = faiss.IndexBinaryFlat(CODE_LENGTH)
    flat.add(codes)
    flat.search(queries[:2], 10)
    started = time.perf_counter()
    distances, _ = flat.search(queries, 10)
    theirs = time.perf_counter() - started
    assert np.array_equal(distances, exact.distances)
    # Ties are as good as each other: a result counts if it is as near as the tenth of the exact ones.
    loss = 1 - float((found.distances <= distances[:, -1:]).mean())
    return [
        Figure("ivf_build", building, f"{rows:,} codes: adding them and building the inverted files", "s"),
        Figure("ivf_queries", len(queries) / ours, f"{rows:,} codes: queries per second by inverted file", "1/s"),
        Figure("exact_queries", len(queries) / own_exact, f"{rows:,} codes: queries per second, exact", "1/s"),
        Figure("flat_queries", len(queries) / theirs, f"{rows:,} codes: queries per second, IndexBinaryFlat", "1/s"),
        Figure("ivf_loss", loss, f"{rows:,} codes: 1 - recall@10 of the inverted file", at_most=LARGEST_LOSS),
        Figure("ivf_share", ours / theirs, f"{rows:,} codes: time relative to exact", at_most=LARGEST_SHARE),
        Figure("peak_memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, "peak of this process", "GB"),
    ]


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
