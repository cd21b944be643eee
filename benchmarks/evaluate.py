"""Time and memory of evaluating retrieval, as a multiple of a bare faiss search of the same codes.

Ours: every measure of the four tasks, mAP over the whole database among them. Theirs: one
`IndexBinaryFlat.search(k=1000)` for each task, which gives the nearest items and no measure.

    python benchmarks/evaluate.py [--bits 32] [--json FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import threading
import time
from collections.abc import Callable
from statistics import median

import faiss
import numpy as np
from report import Figure, add_json_flag, report

from cmimh_tf.codes import check_code_length, pack_bits
from cmimh_tf.metrics import CodedItems, evaluate_retrieval
from cmimh_tf.metrics.evaluation import TASKS

NUM_LABELS = 24
SEARCH_DEPTH = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=32, help="code length")
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--database", type=int, default=186_577)
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each, alternating")
    add_json_flag(parser)
    flags = parser.parse_args()

    items = make_items(flags.queries + flags.database, check_code_length(flags.bits), seed=0)
    query, database = take(items, slice(flags.queries)), take(items, slice(flags.queries, None))
    num_threads = len(os.sched_getaffinity(0))
    faiss.omp_set_num_threads(num_threads)
    indexes = {task: make_index(database.codes(task.split("_to_")[1])) for task in TASKS}

    def ours() -> None:
        evaluate_retrieval(query, database)

    def theirs() -> None:
        for task, index in indexes.items():
            index.search(query.codes(task.split("_to_")[0]), SEARCH_DEPTH)

    few = take(query, slice(8))
    evaluate_retrieval(few, few)  # Compiles, or loads what was compiled before.
    extra_memory = peak_extra_memory(ours)
    times = [(seconds(ours), seconds(theirs)) for _ in range(flags.repeats)]
    ours_seconds, theirs_seconds = (median(column) for column in zip(*times, strict=True))
    sizes = f"{flags.queries:,} queries, {flags.database:,} items, {flags.bits} bits, {num_threads} threads"
    report(
        f"evaluate: {sizes}",
        [
            Figure("ours_seconds", ours_seconds, "all measures, four tasks", "s"),
            Figure("faiss_seconds", theirs_seconds, f"faiss search(k={SEARCH_DEPTH}), four tasks", "s"),
            Figure("ratio", ours_seconds / theirs_seconds, "ours / faiss", at_most=2),
            Figure("extra_memory_gb", extra_memory / 1e9, "extra peak memory of ours", "GB", at_most=2),
        ],
        flags.json,
    )


def make_items(num_items: int, code_length: int, seed: int) -> CodedItems:
    """Codes as a trained model gives them: noisy signs of a projection of the labels."""
    rng = np.random.default_rng(seed)
    rates = 0.3 / np.arange(1, NUM_LABELS + 1) ** 0.75
    labels = rng.random((num_items, NUM_LABELS), np.float32) < rates
    projected = (labels - rates).astype(np.float32) @ rng.standard_normal((NUM_LABELS, code_length), np.float32)
    image_codes, text_codes = (
        pack_bits(projected + 0.5 * rng.standard_normal(projected.shape, np.float32) >= 0) for _ in range(2)
    )
    return CodedItems(image_codes, text_codes, labels.astype(np.uint8))


def take(items: CodedItems, rows: slice) -> CodedItems:
    assert items.labels is not None
    return CodedItems(items.image_codes[rows], items.text_codes[rows], items.labels[rows])


def make_index(codes: np.ndarray) -> faiss.IndexBinaryFlat:
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    return index


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_extra_memory(work: Callable[[], None]) -> int:
    """Bytes of resident memory that `work` adds at its peak, sampled each 2 ms."""
    # Memory that was freed but not given back would be used again and not be seen.
    ctypes.CDLL(None).malloc_trim(0)
    before = peak = resident_bytes()
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, resident_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        work()
    finally:
        done.set()
        sampler.join()
    return max(peak, resident_bytes()) - before


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
