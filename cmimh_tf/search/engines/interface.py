"""What every engine offers: a consistent view to search in, and atomic changes.

An engine stores items under row numbers that grow with each insertion and are never used again. An item that is added
again gets a new row. Equal distances are ordered by row, so that earlier items come first.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from cmimh_tf.search.filters import NUMBER, STRING, Condition
from cmimh_tf.search.items import ItemBatch, Metadata

# Raised when the stored form changes; an index of another format is rejected.
FORMAT = 1
_SUMMARISED_ROWS = 10_000


class IndexNotFound(FileNotFoundError):
    """There is no index at an address."""


class IndexBusy(OSError):
    """Another process is writing to the index."""


class UnknownItem(LookupError, ValueError):
    """An id that is not in the index."""


class IndexDamaged(ValueError):
    """The stored index cannot be read."""


class StorageError(OSError):
    """The database or the disk failed; the index is as it was before."""


@dataclass(frozen=True)
class ModelStamp:
    """The model that made the codes of an index.

    Attributes:
        fingerprint: changes with the weights.
        path: the absolute path of the run folder or export.
        version: the number of the exported version, or None.
        image_features, text_features: names of the features that make vectors of raw pictures and captions, or None
            if the model does so itself.
    """

    fingerprint: str
    path: str
    version: int | None = None
    image_features: str | None = None
    text_features: str | None = None

    def describe(self) -> str:
        """For messages: "runs/mine (fingerprint 0123abcd)"."""
        version = "" if self.version is None else f"version {self.version}, "
        return f"{self.path} ({version}fingerprint {self.fingerprint})"


@dataclass(frozen=True)
class Header:
    """What an index says about itself.

    Attributes:
        code_length: L, the number of bits.
        model: the model that made the codes, or None for codes of unknown origin.
        keeps_features: whether real-valued codes are stored beside the bits.
        columns: the kind of each metadata column: "number", "string" or "labels".
        sources: the data that items were read from, in order: {"data": ..., "fingerprint": ...}.
        complete: False while the index is being built in a database.
        format: of the stored form.
    """

    code_length: int
    model: ModelStamp | None = None
    keeps_features: bool = False
    columns: dict[str, str] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)
    complete: bool = True
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any], address: str) -> Header:
        """The header that `to_json` gave.

        Raises:
            IndexDamaged: if it was written by another version of the format, or is no header.
        """
        written = values.get("format")
        if written != FORMAT:
            raise IndexDamaged(
                f"{address} must be an index of format {FORMAT}. Received: format {written}. Open it with the version "
                "of cmimh_tf that wrote it, or build it again: python -m cmimh_tf.index build"
            )
        known = {entry.name for entry in fields(cls)}
        model = values.get("model")
        return cls(**{**{name: values[name] for name in known & set(values)}, "model": model and ModelStamp(**model)})


@dataclass(frozen=True)
class StoredItem:
    """What is stored about one item, beside its codes."""

    row: int
    id: str
    caption: str | None
    picture: str | None
    metadata: Metadata


def stored_items(batch: ItemBatch, first_row: int) -> list[StoredItem]:
    """The items of a batch under the rows from `first_row` on."""
    captions = batch.captions or [None] * len(batch)
    pictures = batch.pictures or [None] * len(batch)
    metadata = batch.metadata or [{}] * len(batch)
    return [
        StoredItem(first_row + index, *values)
        for index, values in enumerate(zip(batch.ids, captions, pictures, metadata, strict=True))
    ]


@dataclass(frozen=True)
class ColumnSummary:
    """What is in a metadata column.

    Attributes:
        name: of the column.
        kind: "number", "string" or "labels".
        values: the most frequent strings or labels, most frequent first.
        complete: whether these are all of them.
        range: the smallest and the largest number, or None.
    """

    name: str
    kind: str
    values: list[str] = field(default_factory=list)
    complete: bool = True
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Counts:
    """Numbers of items, and of those with an image code and a text code."""

    items: int
    images: int
    texts: int


class View(abc.ABC):
    """The index at one moment: later changes are not seen."""

    header: Header

    @abc.abstractmethod
    def counts(self) -> Counts:
        """How many items there are."""

    @abc.abstractmethod
    def nearest(
        self,
        side: str,
        codes: np.ndarray,
        top: int | None,
        *,
        where: Condition | None = None,
        radius: int | None = None,
        exact: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nearest items of each query.

        Args:
            side: "image" or "text": which codes are searched.
            codes: uint8 [Q, L/8].
            top: how many; None for all within `radius`, which must then be given.
            where: only items that meet this condition, bound to the columns.
            radius: only items at this Hamming distance or nearer.
            exact: use no approximate index.

        Returns:
            Rows, int64 [Q, K], and distances, int32 [Q, K], by distance and then by row. K is at most `top`; where a
            query has fewer results, both are -1.
        """

    @abc.abstractmethod
    def codes(self, side: str, rows: np.ndarray) -> np.ndarray:
        """Codes, uint8 [n, L/8], of rows that have this side."""

    @abc.abstractmethod
    def features(self, side: str, rows: np.ndarray) -> np.ndarray:
        """Real-valued codes, float16 [n, L], of rows that have this side."""

    @abc.abstractmethod
    def has_side(self, side: str, rows: np.ndarray) -> np.ndarray:
        """bool [n]: which rows have a code of this side."""

    @abc.abstractmethod
    def ids(self, rows: np.ndarray) -> list[str]:
        """The ids of rows that are there."""

    def ids_later(self, rows: np.ndarray) -> Callable[[], list[str]]:
        """A function that gives the ids of rows, and may be called after the view has ended."""
        ids = self.ids(rows)
        return lambda: ids

    @abc.abstractmethod
    def items(self, rows: np.ndarray) -> list[StoredItem]:
        """What is stored about rows that are there."""

    @abc.abstractmethod
    def rows_of(self, ids: list[str]) -> np.ndarray:
        """The rows, int64 [n], of ids; -1 for an id that is not there."""

    @abc.abstractmethod
    def all_rows(self, where: Condition | None = None) -> np.ndarray:
        """All rows, int64 ascending, that meet a condition."""

    def summarise(self, name: str, kind: str, most: int) -> ColumnSummary:
        """A metadata column, from up to 10,000 items that are spread over the index."""
        rows = self.all_rows()
        chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _SUMMARISED_ROWS), dtype=np.int64))
        values = [item.metadata[name] for item in self.items(rows[chosen]) if name in item.metadata]
        if kind == NUMBER:
            return ColumnSummary(name, kind, range=(min(values), max(values)) if values else None)
        texts = values if kind == STRING else [label for labels in values for label in labels]
        frequent = [text for text, _ in Counter(texts).most_common(most + 1)]
        return ColumnSummary(name, kind, frequent[:most], len(frequent) <= most and len(chosen) == len(rows))


class Writer(abc.ABC):
    """Changes that take effect together when the `writing` block ends, and not at all if it raises."""

    @abc.abstractmethod
    def add(self, batch: ItemBatch) -> int:
        """Adds items, replacing those with the same ids; returns how many were replaced.

        Raises:
            ItemError: if an id was already added in the same block.
        """

    @abc.abstractmethod
    def remove(self, rows: np.ndarray) -> None:
        """Removes items."""

    @abc.abstractmethod
    def set_header(self, header: Header) -> None:
        """Replaces the header, except for the code length."""


class Engine(abc.ABC):
    """An index in one place, opened."""

    address: str

    @abc.abstractmethod
    def view(self) -> AbstractContextManager[View]:
        """The index as it is now, for reading."""

    @abc.abstractmethod
    def writing(self) -> AbstractContextManager[Writer]:
        """Holds the index for changes.

        Raises:
            IndexBusy: if another process, or another handle, is writing.
            StorageError: if the changes could not be stored.
        """

    @abc.abstractmethod
    def replace_codes(self, make: Callable[[View], tuple[Header, Iterator[ItemBatch]]]) -> None:
        """Puts new codes in the place of all old ones, in one step. The index is held for changes meanwhile.

        Args:
            make: gives, for a view of the index, the new header, whose code length may differ, and the codes and
                features of all items by ascending row. Captions, pictures and metadata stay as they are.

        Raises:
            IndexBusy, StorageError: as `writing`.
        """

    @abc.abstractmethod
    def verify(self) -> list[str]:
        """Reads every row and compares checksums; returns one sentence per problem."""

    @abc.abstractmethod
    def size(self) -> int:
        """Bytes on disk."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Facts about the engine for `info`, such as {"engine": "embedded", "search": "exact"}."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes connections and files."""
