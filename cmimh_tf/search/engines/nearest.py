"""Nearest codes by Hamming distance: exact, or through the lists of an inverted file (IVF) of faiss.

The exact search gives what `faiss.IndexBinaryFlat` gives, with equal distances ordered by position. It works on plain
NumPy arrays, so that a snapshot of an index can be searched while another thread makes the next one.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.checksums import verify
from cmimh_tf.files import atomic_path

# Queries x codes below which threads cost more than they save: about a millisecond of work.
_LEAST_WORK_FOR_THREADS = 2_000_000
# Queries that one thread searches together: a block of codes is read once for all of them.
_MOST_QUERIES_TOGETHER = 64
_FIRST_GUESS_IN_RADIUS = 1024
# Training codes per list. faiss warns below 39.
_TRAINING_CODES_PER_LIST = 64
_TRAINING_ROUNDS = 10
_LEAST_PROBES = 16


def nearest_codes(queries: np.ndarray, codes: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest codes of each query, by distance and then by position.

    Args:
        queries: uint8 [Q, L/8].
        codes: uint8 [N, L/8], contiguous.
        top: how many; more than N means N.

    Returns:
        Positions, int64 [Q, min(top, N)], and distances, int32 of the same shape.
    """
    from cmimh_tf.search.engines.nearest_kernel import fill_nearest

    top = min(top, len(codes))
    positions, distances = np.empty((len(queries), top), np.int64), np.empty((len(queries), top), np.int32)
    if not positions.size:
        return positions, distances
    query_words, words = _words(queries), _words(codes).reshape(-1)

    def search(block: slice) -> None:
        fill_nearest(query_words[block], words, positions[block], distances[block])

    _in_blocks(search, len(queries), len(queries) * len(codes))
    return positions, distances


def _words(codes: np.ndarray) -> np.ndarray:
    """Codes, uint8 [N, L/8], as [N, W] words that are as wide as possible."""
    codes = np.ascontiguousarray(codes)
    width = next(width for width in (8, 4, 1) if codes.shape[1] % width == 0)
    words = codes.view(f"u{width}")
    # Arrays that can be written and those that cannot would be compiled for separately.
    words.flags.writeable = False
    return words


def codes_within(queries: np.ndarray, codes: np.ndarray, radius: int) -> tuple[np.ndarray, np.ndarray]:
    """All codes within a Hamming distance, as `nearest_codes`; positions and distances are -1 beyond the last."""
    top = _FIRST_GUESS_IN_RADIUS
    while True:
        positions, distances = nearest_codes(queries, codes, top)
        if top >= len(codes) or not (distances[:, -1:] <= radius).any():
            break
        top *= 4
    return cut_at_radius(positions, distances, radius)


def cut_at_radius(positions: np.ndarray, distances: np.ndarray, radius: int) -> tuple[np.ndarray, np.ndarray]:
    """Sets both to -1 where the distance is larger than `radius`, and drops columns without any result."""
    inside = (distances >= 0) & (distances <= radius)
    longest = int(inside.sum(axis=1).max(initial=0))
    inside = inside[:, :longest]
    return np.where(inside, positions[:, :longest], -1), np.where(inside, distances[:, :longest], -1)


def merge_nearest(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], top: int
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest of two results, each (rows, distances) with -1 for missing ones, by distance and then by row."""
    rows = np.concatenate([first[0], second[0]], axis=1)
    distances = np.concatenate([first[1], second[1]], axis=1)
    keys = np.where(rows < 0, np.iinfo(np.int64).max, (distances.astype(np.int64) << 40) | rows)
    order = np.argsort(keys, axis=1, kind="stable")[:, :top]
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(distances, order, axis=1)


class InvertedFile:
    """Codes in lists around centres; a query looks at the nearest lists only, and may miss a few codes.

    Args:
        index: faiss.IndexBinaryIVF whose ids are row numbers.
        last_row: rows up to this one are in it.
        num_probes: how many lists a query looks at; by default 16, or a 64th of many lists.
    """

    def __init__(self, index: Any, last_row: int, num_probes: int | None = None):
        self.index = index
        self.last_row = last_row
        self.index.nprobe = min(index.nlist, num_probes or max(_LEAST_PROBES, index.nlist // 64))

    def __len__(self) -> int:
        return self.index.ntotal

    @classmethod
    def train(cls, codes: np.ndarray, rows: np.ndarray, num_lists: int | None = None, seed: int = 0) -> InvertedFile:
        """Makes the lists of codes, uint8 [N, L/8], with rows int64 [N], ascending."""
        import faiss

        num_lists = num_lists or 2 ** round(math.log2(max(1.0, math.sqrt(len(codes)) / 1.5)))
        code_length = 8 * codes.shape[1]
        quantizer = faiss.IndexBinaryFlat(code_length)
        index = faiss.IndexBinaryIVF(quantizer, code_length, num_lists)
        index.cp.niter = _TRAINING_ROUNDS
        index.cp.seed = seed
        sample = np.random.default_rng(seed).permutation(len(codes))[: _TRAINING_CODES_PER_LIST * num_lists]
        index.train(np.ascontiguousarray(codes[np.sort(sample)]))
        index.add_with_ids(np.ascontiguousarray(codes), np.ascontiguousarray(rows, np.int64))
        return cls(index, int(rows[-1]))

    def search(self, queries: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows, int64 [Q, top], and distances, int32 [Q, top], with -1 where the lists held too few codes."""
        import faiss

        queries = np.ascontiguousarray(queries)
        rows, distances = np.empty((len(queries), top), np.int64), np.empty((len(queries), top), np.int32)

        def search(block: slice) -> None:
            # faiss's own threads spin while they wait for each other, which is slow beside TensorFlow or other
            # processes. The setting belongs to the calling thread.
            before = faiss.omp_get_max_threads()
            faiss.omp_set_num_threads(1)
            try:
                distances[block], rows[block] = self.index.search(queries[block], top)
            finally:
                faiss.omp_set_num_threads(before)

        share = self.index.nprobe / self.index.nlist
        _in_blocks(search, len(queries), round(len(queries) * len(self) * share))
        distances[rows < 0] = -1
        return rows, distances

    def save(self, path: Path) -> None:
        """Writes the lists to a file that appears complete."""
        import faiss

        with atomic_path(path, checksum=True) as temporary:
            faiss.write_index_binary(self.index, str(temporary))

    @classmethod
    def load(cls, path: Path, last_row: int) -> InvertedFile:
        """Reads what `save` wrote.

        Raises:
            DamagedFile, RuntimeError: if the file is not what was written.
        """
        verify(path)
        import faiss

        return cls(faiss.read_index_binary(str(path)), last_row)


def _in_blocks(search: Callable[[slice], None], num_queries: int, work: int) -> None:
    """Calls `search` for blocks of queries, on several threads if that pays off."""
    threads = _num_threads()
    size = _MOST_QUERIES_TOGETHER
    if work >= _LEAST_WORK_FOR_THREADS and threads > 1:
        size = min(size, math.ceil(num_queries / threads))
    blocks = [slice(start, start + size) for start in range(0, num_queries, size)]
    if len(blocks) == 1:
        search(blocks[0])
    else:
        list(_pool(os.getpid()).map(search, blocks))


def _num_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    # By process: threads do not survive a fork.
    return ThreadPoolExecutor(_num_threads(), thread_name_prefix="search")
