"""Records: one pair at a time, in the same form for every kind of file, and what all readers have in common.

    >>> for record in open_records("pairs.csv"):
    ...     print(record.id, len(record.image_bytes), record.caption)

A `PairReader` is small and picklable: it holds paths, not data. Iterate over it, or let several workers read its
blocks: `reader.index().blocks` lists (start, stop), and `reader.read(start, stop)` yields the records of one block.
`cmimh_tf.data.sources.open_records` finds the reader for a path or a name.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.checksums import DamagedFile
from cmimh_tf.data.pairs import DataError, PairedData
from cmimh_tf.data.splits import Splits
from cmimh_tf.files import locked_folder, remove_folder
from cmimh_tf.progress import ProgressBar
from cmimh_tf.stored_rows import BLOCK_ROWS, open_rows, store_rows

ROWS_PER_BLOCK = 256
# A NumPy array of strings needs four bytes per character of its longest string for every string.
MAX_CAPTION_CHARACTERS = 1000


@dataclass(frozen=True, eq=False)
class PairRecord:
    """One pair: a picture or its vector, and a caption or its vector.

    Attributes:
        id: unique within its source.
        place: its location for error messages, such as "pairs.csv, line 3".
        image: float32 [Di], or None.
        image_bytes: an encoded picture (JPEG, PNG, GIF or BMP), or None. `image` or `image_bytes` is present.
        text: float32 [Dt], or None.
        caption: str, or None. `text` or `caption` is present.
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
        """The fields for a tf.Example, without those that are None; `labels` as int64."""
        names = ("image", "image_bytes", "text", "caption")
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.labels is not None:
            found["labels"] = self.labels.astype(np.int64)
        return found

    def widths(self) -> dict[str, int]:
        """The lengths of `image`, `text` and `labels`, without those that are None."""
        arrays = {name: getattr(self, name) for name in ("image", "text", "labels")}
        return {name: len(array) for name, array in arrays.items() if array is not None}


@dataclass(frozen=True, eq=False)
class RecordIndex:
    """What is known about a source before its records are read.

    Attributes:
        ids: one id per record. Ids are unique, except that a record of an official training split repeats the id of
            its copy in the database.
        blocks: (first row, row after the last) of the parts that workers read, in order and without gaps.
        is_query: bool [N], marks an official query set, or None.
        splits: complete official splits, or None.
        classes: C names of the columns of `labels`, or None.
        problems: errors that were found without reading every record.
    """

    ids: list[str]
    blocks: list[tuple[int, int]]
    is_query: np.ndarray | None = None
    splits: Splits | None = None
    classes: list[str] | None = None
    problems: Sequence[DataError] = field(default=())

    def is_used(self) -> np.ndarray:
        """bool [N]: the rows that are in the database or the query set. Without official splits, every row."""
        if self.splits is None:
            return np.ones(len(self.ids), bool)
        used = np.zeros(len(self.ids), bool)
        used[self.splits.database] = used[self.splits.query] = True
        return used

    def split_marks(self) -> np.ndarray | None:
        """ "train", "database" or "query" for each row, or None without official splits.

        `splits_from_marks` turns the marks of the used rows back into the same splits.
        """
        if self.splits is None and self.is_query is None:
            return None
        marks = np.full(len(self.ids), "database", dtype="U8")
        if self.splits is None:
            marks[self.is_query] = "query"
        else:
            marks[self.splits.query] = "query"
            marks[self.splits.train] = "train"
        return marks

    def official_masks(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """(is_query, is_train) for `PairedData`, each bool [number of used rows] or None."""
        if self.splits is None:
            return self.is_query, None
        masks = np.zeros((2, len(self.ids)), bool)
        masks[0, self.splits.query] = True
        masks[1, self.splits.train] = True
        is_query, is_train = masks[:, self.is_used()]
        return is_query, is_train


class PairReader(abc.ABC):
    """Pairs that several workers can read in blocks."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """A short name for folders and headings."""

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """A string that changes when the data change, so that results cached for older data are not reused."""

    @abc.abstractmethod
    def survey(self) -> RecordIndex:
        """Goes through the source once. Errors of single records are collected in `problems`.

        Raises:
            DataError: if nothing can be read at all.
        """

    @abc.abstractmethod
    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        """Yields for each row of a block its record, or the error in it."""

    def index(self) -> RecordIndex:
        """As `survey`, but raises the first problem.

        Raises:
            DataError: the first problem.
        """
        index = self.survey()
        if index.problems:
            raise index.problems[0]
        return index

    def read(self, start: int, stop: int) -> Iterator[PairRecord]:
        """Yields the records of one block.

        Raises:
            DataError: naming the first record with an error.
        """
        for record in self.scan(start, stop):
            if isinstance(record, DataError):
                raise record
            yield record

    def __iter__(self) -> Iterator[PairRecord]:
        """Yields every pair once. Records that are in no official split, such as copies for training, are skipped."""
        index = self.index()
        is_used = index.is_used()
        for start, stop in index.blocks:
            if is_used[start:stop].any():
                for row, record in enumerate(self.read(start, stop), start):
                    if is_used[row]:
                        yield record


def even_blocks(num_rows: int, rows_per_block: int = ROWS_PER_BLOCK) -> list[tuple[int, int]]:
    """Splits rows into blocks of equal size; the last one may be smaller."""
    return [(start, min(start + rows_per_block, num_rows)) for start in range(0, num_rows, rows_per_block)]


def check_vector(values: Any, name: str, place: str) -> np.ndarray:
    """Converts finite numbers to float32 [D].

    Raises:
        DataError: naming the record and the field.
    """
    try:
        vector = np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{place}: `{name}` must be numbers. Received: {str(values)[:60]}.") from error
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise DataError(f"{place}: `{name}` must be a list of finite numbers. Received: {str(values)[:60]}.")
    return vector


def load_vectors(reader: PairReader) -> PairedData:
    """Loads all pairs of a source of vectors. Official splits become `is_query` and `is_train`.

    A vector of zeros, such as the tags of a picture that has none of the common tags, gets one tiny value (see
    `with_trace`), because `PairedData` rejects rows of zeros as missing data. Captions are cut as by `shown_caption`.

    Raises:
        DataError: naming the first record that has no vector, or a vector of another width.
    """
    columns: dict[str, list[Any]] = {"image": [], "text": [], "labels": [], "ids": [], "captions": []}
    for record in iterate_vectors(reader):
        columns["image"].append(record.image)
        columns["text"].append(record.text)
        columns["ids"].append(record.id)
        columns["captions"].append(shown_caption(record))
        if record.labels is not None:
            columns["labels"].append(record.labels)
    index = reader.index()
    is_query, is_train = index.official_masks()
    return PairedData(
        image=with_trace(np.stack(columns["image"])),
        text=with_trace(np.stack(columns["text"])),
        labels=np.stack(columns["labels"]) if columns["labels"] else None,
        ids=np.array(columns["ids"]),
        captions=np.array(columns["captions"]) if any(columns["captions"]) else None,
        is_query=is_query,
        classes=np.array(index.classes) if index.classes and columns["labels"] else None,
        is_train=is_train,
    )


def store_vectors(reader: PairReader, folder: Path) -> PairedData:
    """As `load_vectors`, with vectors and labels in files, and without ids and captions.

    Args:
        reader: the source.
        folder: keeps the files under the fingerprint of the source: the next call only opens them. Files of other data
            are removed.

    Raises:
        DataError: naming the first record that has no vector, or a vector of another width.
        ValueError: if another process uses the folder.
    """
    is_query, is_train = reader.index().official_masks()
    columns = store_parts(vector_parts(reader), reader.fingerprint(), folder)
    return PairedData(**columns, is_query=is_query, is_train=is_train)


def store_parts(parts: Iterable[PairedData], fingerprint: str, folder: Path) -> dict[str, Any]:
    """Writes vectors and labels to files, part by part; for arguments and errors see `store_vectors`.

    Returns:
        `StoredRows` by the names "image", "text" and, if there are any, "labels".
    """
    files = folder / fingerprint
    with locked_folder(folder, lambda process: ValueError(f"{folder} is in use by process {process}.")):
        for other in folder.iterdir():
            if other.is_dir() and other != files:
                remove_folder(other)
        if files.exists():
            # Damaged files are made again.
            with suppress(DamagedFile):
                return dict(open_rows(files))
            remove_folder(files)
        return dict(store_rows(files, map(_matrices, parts)))


def _matrices(part: PairedData) -> dict[str, np.ndarray]:
    matrices = {"image": part.image, "text": part.text}
    return matrices if part.labels is None else {**matrices, "labels": part.labels}


def vector_parts(reader: PairReader) -> Iterator[PairedData]:
    """As `load_vectors`, `BLOCK_ROWS` pairs at a time, with vectors, labels and ids only."""
    records = iterate_vectors(reader)
    with ProgressBar(int(reader.index().is_used().sum()), "reading", "pairs") as bar:
        while block := list(itertools.islice(records, BLOCK_ROWS)):
            columns = {name: with_trace(np.stack([getattr(one, name) for one in block])) for name in ("image", "text")}
            if block[0].labels is not None:
                columns["labels"] = np.stack([np.asarray(record.labels) for record in block])
            yield PairedData(**columns, ids=np.array([record.id for record in block]))
            bar.update(len(block))


def iterate_vectors(reader: PairReader) -> Iterator[PairRecord]:
    """Yields every pair once, as `iter(reader)` does, and checks that all vectors have the same width.

    Raises:
        DataError: naming the first record that has no vector, or a vector of another width.
    """
    widths: dict[str, int] = {}
    for record in reader:
        for name in ("image", "text"):
            vector = getattr(record, name)
            if vector is None:
                raise DataError(
                    f"{record.place}: `{name}` must be a vector to train on. Received: a picture or caption. Compute "
                    "vectors first (python -m cmimh_tf.features), or run the pipeline: python pipeline/run_local.py "
                    "--data PATH."
                )
            if len(vector) != widths.setdefault(name, len(vector)):
                raise DataError(
                    f"{record.place}: `{name}` must have {widths[name]} values, as in the first record. Received: "
                    f"{len(vector)}."
                )
        yield record


def shown_caption(record: PairRecord) -> str:
    """The first `MAX_CAPTION_CHARACTERS` of the caption, or "". Beside a vector, a caption is only displayed."""
    return (record.caption or "")[:MAX_CAPTION_CHARACTERS]


def with_trace(vectors: np.ndarray) -> np.ndarray:
    """[N, D] with the smallest positive float32 as first value of every row of zeros; the argument is not modified."""
    empty = ~vectors.any(axis=1)
    if not empty.any():
        return vectors
    traced = vectors.astype(np.float32)
    traced[empty, 0] = np.finfo(np.float32).tiny
    return traced
