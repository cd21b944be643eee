"""What ExampleGen needs to know of a source of pairs, whatever its format."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.splits import Splits

ROWS_PER_BLOCK = 256
_BYTES_AT_ONCE = 1 << 20


class DataError(ValueError):
    """Data that cannot be trained on; the message names the file and the record."""


@dataclass(frozen=True, eq=False)
class SourceIndex:
    """What is known of a source before its pairs are read.

    Attributes:
        ids: one name a pair, no two equal.
        blocks: (first row, row after the last) of the parts that workers read, in order and without gaps.
        is_query: bool [N], an official query set, or None.
        splits: official splits, or None.
    """

    ids: list[str]
    blocks: list[tuple[int, int]]
    is_query: np.ndarray | None = None
    splits: Splits | None = None


class PairSource(abc.ABC):
    """Pairs that can be read in blocks by many workers. Small and picklable: it holds paths, not data."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """A short name for folders and headings."""

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Changes when the data does, so that cached results of older data are not used."""

    @abc.abstractmethod
    def index(self) -> SourceIndex:
        """Looks through the source once.

        Raises:
            DataError: if something is wrong that can be seen without reading every pair.
        """

    @abc.abstractmethod
    def read(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        """The pairs of one block, as features of a tf.Example: `image` or `image_bytes`, `text` or `caption`,
        and `labels` if there are some.

        Raises:
            DataError: naming the record that is wrong.
        """


def even_blocks(num_rows: int, rows_per_block: int = ROWS_PER_BLOCK) -> list[tuple[int, int]]:
    """Splits rows into blocks of one size, the last one smaller."""
    return [(start, min(start + rows_per_block, num_rows)) for start in range(0, num_rows, rows_per_block)]


def check_unique_ids(ids: Iterable[str], places: Iterable[str]) -> None:
    """Refuses a repeated id.

    Args:
        ids: the ids of all pairs.
        places: how each pair is called in an error, such as "pairs.csv, line 3".
    """
    seen: dict[str, str] = {}
    for item_id, place in zip(ids, places, strict=True):
        if item_id in seen:
            raise DataError(
                f"{place}: ids must not repeat, or a query would also be in the database. Received: "
                f"{item_id!r}, as in {seen[item_id]}."
            )
        seen[item_id] = place


def files_fingerprint(contents: Iterable[Path], stats: Mapping[str, Path] | None = None) -> str:
    """A hash of the bytes of some files, and of the names, sizes and times of others."""
    digest = hashlib.sha256()
    for path in contents:
        with path.open("rb") as file:
            while block := file.read(_BYTES_AT_ONCE):
                digest.update(block)
    for name, path in sorted((stats or {}).items()):
        stat = path.stat() if path.exists() else None
        digest.update(f"{name}:{stat and (stat.st_size, stat.st_mtime_ns)}".encode())
    return digest.hexdigest()[:16]
