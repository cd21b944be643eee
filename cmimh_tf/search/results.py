"""What searches return."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.search.items import Metadata


@dataclass(frozen=True)
class Item:
    """What an index holds about an item.

    Attributes:
        id: of the item.
        caption: its text, or None.
        picture: where its picture is, or None.
        metadata: strings, numbers and lists of labels by column.
        codes: the packed codes of the sides that it has, "image" and "text".
    """

    id: str
    caption: str | None
    picture: str | None
    metadata: Metadata
    codes: dict[str, bytes]


@dataclass(frozen=True)
class Hit:
    """One result.

    Attributes:
        id: of the item.
        distance: the Hamming distance between the codes of query and item.
        score: from -1 to 1, where 1 is a perfect match; see `cmimh_tf.search.ranking`.
        found: "image" or "text": which side of the item was found.
        caption: the text of the item, or None.
        picture: where its picture is, or None.
        metadata: strings, numbers and lists of labels by column.
        code: the packed code that was found.
    """

    id: str
    distance: int
    score: float
    found: str
    caption: str | None
    picture: str | None
    metadata: Metadata
    code: bytes


class Results(Sequence[Any]):
    """The hits of one or more queries.

    With one query it is the list of that query's hits: `results[0].id`. With several it is a list of such lists:
    `results[query][0].id`. `results.per_query` is a list of lists in both cases.

    Attributes:
        per_query: the hits of each query, best first.
        codes: uint8 [queries, L/8], the codes of the queries.
    """

    def __init__(self, per_query: list[list[Hit]], codes: np.ndarray):
        self.per_query = per_query
        self.codes = codes

    def _list(self) -> list[Any]:
        return self.per_query[0] if len(self.per_query) == 1 else self.per_query

    def __len__(self) -> int:
        return len(self._list())

    def __getitem__(self, index: Any) -> Any:
        return self._list()[index]

    def __repr__(self) -> str:
        return f"Results({self._list()!r})"


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The results of many queries as arrays of shape [queries, results].

    Attributes:
        distances: int32 Hamming distances; -1 where a query has fewer results.
        scores: float32 scores.
        found: uint8, 0 for items found by their image and 1 for those found by their text.
        rows: int64 numbers of the items in the order of insertion; -1 where a query has fewer results.
    """

    distances: np.ndarray
    scores: np.ndarray
    found: np.ndarray
    rows: np.ndarray
    _ids: Callable[[], list[str]]

    @functools.cached_property
    def ids(self) -> np.ndarray:
        """Ids as an array of strings; "" where a query has fewer results."""
        known = self.rows >= 0
        ids = np.empty(self.rows.shape, object)
        ids[known] = self._ids()
        ids[~known] = ""
        return ids


@dataclass(frozen=True)
class Added:
    """How many items were added, and how many of these replaced an item with the same id."""

    added: int
    replaced: int
