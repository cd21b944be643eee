"""One way to read pairs, whatever file or data set they come from.

    >>> for record in open_records("pairs.csv"):
    ...     print(record.id, len(record.image_bytes), record.caption)

`open_records` gives a `PairReader`: small and picklable, it holds paths and no data. Iterate over it, or let many
workers read its blocks: `reader.index().blocks` are (start, stop), and `reader.read(start, stop)` gives their records.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.splits import Splits

ROWS_PER_BLOCK = 256
_BYTES_AT_ONCE = 1 << 20


class DataError(ValueError):
    """Data that cannot be trained on; the message names the file and the record."""


@dataclass(frozen=True, eq=False)
class PairRecord:
    """One pair: a picture or its vector, and a caption or its vector.

    Attributes:
        id: unique in its source.
        place: where it stands, for messages: "pairs.csv, line 3".
        image: float32 [Di], or None if there is only a picture.
        image_bytes: an encoded picture (JPEG, PNG, GIF or BMP), or None. At least one of the two is there.
        text: float32 [Dt], or None if there is only a caption.
        caption: str, or None. At least one of the two is there.
        labels: uint8 [C] of 0 and 1, or None.
    """

    id: str
    place: str
    image: np.ndarray | None = None
    image_bytes: bytes | None = None
    text: np.ndarray | None = None
    caption: str | None = None
    labels: np.ndarray | None = None

    def features(self) -> dict[str, Any]:
        """What there is of `image`, `image_bytes`, `text`, `caption` and `labels` (int64), as of a tf.Example."""
        names = ("image", "image_bytes", "text", "caption")
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.labels is not None:
            found["labels"] = self.labels.astype(np.int64)
        return found


@dataclass(frozen=True, eq=False)
class RecordIndex:
    """What is known of a source before its records are read.

    Attributes:
        ids: one name a record. No two are equal, but that a record of an official training split repeats the one of
            the database.
        blocks: (first row, row after the last) of the parts that workers read, in order and without gaps.
        is_query: bool [N], an official query set, or None.
        splits: official splits, or None.
        classes: C names of the labels' columns, or None.
        problems: what is wrong that can be seen without reading every record.
    """

    ids: list[str]
    blocks: list[tuple[int, int]]
    is_query: np.ndarray | None = None
    splits: Splits | None = None
    classes: list[str] | None = None
    problems: Sequence[DataError] = field(default=())

    def is_used(self) -> np.ndarray:
        """bool [N]: the rows that are database or query. Without official splits that is every row."""
        if self.splits is None:
            return np.ones(len(self.ids), bool)
        used = np.zeros(len(self.ids), bool)
        used[self.splits.database] = used[self.splits.query] = True
        return used


class PairReader(abc.ABC):
    """Pairs that can be read in blocks by many workers."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """A short name for folders and headings."""

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Changes when the data does, so that cached results of older data are not used."""

    @abc.abstractmethod
    def survey(self) -> RecordIndex:
        """Looks through the source once; what is wrong with single records goes to `problems`.

        Raises:
            DataError: if nothing can be read at all.
        """

    @abc.abstractmethod
    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        """One record for each row of a block, or what is wrong with it."""

    def index(self) -> RecordIndex:
        """As `survey`, but refuses a source with problems.

        Raises:
            DataError: the first problem.
        """
        index = self.survey()
        if index.problems:
            raise index.problems[0]
        return index

    def read(self, start: int, stop: int) -> Iterator[PairRecord]:
        """The records of one block.

        Raises:
            DataError: naming the record that is wrong.
        """
        for record in self.scan(start, stop):
            if isinstance(record, DataError):
                raise record
            yield record

    def __iter__(self) -> Iterator[PairRecord]:
        """Every pair once: records that are in no official split, such as copies for training, are left out."""
        index = self.index()
        is_used = index.is_used()
        for start, stop in index.blocks:
            if is_used[start:stop].any():
                for row, record in enumerate(self.read(start, stop), start):
                    if is_used[row]:
                        yield record


def open_records(spec: str) -> PairReader:
    """The reader of what a path or a name stands for. Reads no record yet.

    Args:
        spec: the path of a table of pictures and captions (.csv, .jsonl, .parquet), of a folder with one, of
            WebDataset shards (.tar), of vectors (.npz), of TFRecords (a file, a folder or a pattern) or of a prepared
            TFDS data set; or the name of a data set: `emoji`, `synthetic`, `mirflickr25k`, `nuswide`, `mscoco`, or
            `tfds:NAME`.

    Raises:
        FileNotFoundError: for a path that does not exist.
        ValueError: for a name or a kind of file that is not known.
    """
    from cmimh_tf.data.readers.open_reader import open_reader

    return open_reader(spec)


def even_blocks(num_rows: int, rows_per_block: int = ROWS_PER_BLOCK) -> list[tuple[int, int]]:
    """Splits rows into blocks of one size, the last one smaller."""
    return [(start, min(start + rows_per_block, num_rows)) for start in range(0, num_rows, rows_per_block)]


def repeated_ids(ids: Iterable[str], places: Iterable[str]) -> list[DataError]:
    """One error for each id that was there before.

    Args:
        ids: the ids of all records.
        places: how each record is called in an error, such as "pairs.csv, line 3".
    """
    seen: dict[str, str] = {}
    errors = []
    for item_id, place in zip(ids, places, strict=True):
        if item_id in seen:
            errors.append(
                DataError(
                    f"{place}: ids must not repeat, or a query would also be in the database. Received: "
                    f"{item_id!r}, as in {seen[item_id]}."
                )
            )
        else:
            seen[item_id] = place
    return errors


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
