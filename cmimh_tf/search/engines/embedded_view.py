"""What searches of an embedded index see: the items in memory, and captions and metadata on disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.search.engines.database import Database
from cmimh_tf.search.engines.interface import ColumnSummary, Counts, Header, StoredItem, View
from cmimh_tf.search.engines.memory import IdTable, Items, Memory
from cmimh_tf.search.engines.nearest import InvertedFile, codes_within, cut_at_radius, merge_nearest, nearest_codes
from cmimh_tf.search.engines.numpy_filters import Column, evaluate, make_column, passing_strings
from cmimh_tf.search.filters import FIELDS, Comparison, Condition
from cmimh_tf.search.items import SIDES

if TYPE_CHECKING:
    from cmimh_tf.search.engines.embedded import EmbeddedEngine

_FILTERS_KEPT = 8
# An inverted file is made anew when so large a share of the codes came after it, or was removed from it.
_MOST_LATER, _MOST_REMOVED = 0.2, 0.1


class IndexState:
    """One state of the index in memory.

    Attributes:
        generation: the folder that it was read from.
        header: of this state.
        memory: makes the snapshot of the next state.
        snapshot: rows, ids and codes.
        columns: the filter columns that have been loaded.
        id_table: finds rows by id, once it was needed.
        inverted_files: by side, once they were needed.
    """

    def __init__(self, generation: int, header: Header, memory: Memory):
        self.generation = generation
        self.header = header
        self.memory = memory
        self.snapshot = memory.snapshot
        self.columns: dict[str, Column] = {}
        self.subsets: dict[Any, tuple[np.ndarray, np.ndarray]] = {}
        self.id_table: IdTable | None = None
        self.inverted_files: dict[str, InvertedFile | None] = {}

    def after(self, header: Header, keep: np.ndarray | None, new: Items, change: int, database: Database) -> IndexState:
        """The state after a change; loaded columns, ids and inverted files go with it."""
        last_row = self.snapshot.last_row
        self.memory.update(keep, new, change)
        state = IndexState(self.generation, header, self.memory)
        state.id_table = self.id_table
        state.inverted_files = {side: found for side, found in self.inverted_files.items() if found is not None}
        for name, column in self.columns.items():
            kept = column if keep is None else column.keep(keep)
            state.columns[name] = kept.append(len(new), _positioned(database.column(name, last_row), new.rows))
        return state

    def column(self, name: str, kind: str, database: Database) -> Column:
        """A filter column, loaded on first use."""
        if name not in self.columns:
            values = _positioned(database.column(name, 0), self.snapshot.rows)
            self.columns[name] = make_column(kind).append(len(self.snapshot), values)
        return self.columns[name]

    def is_outdated(self, side: str, inverted_file: InvertedFile) -> bool:
        """Whether much was added or removed since an inverted file was made."""
        snapshot = self.snapshot
        owners = snapshot.sides[side].owners
        rows = snapshot.rows if owners is None else snapshot.rows[owners]
        covered = int(np.searchsorted(rows, inverted_file.last_row, "right"))
        removed = len(inverted_file) - covered
        return len(rows) - covered > _MOST_LATER * len(rows) or removed > _MOST_REMOVED * len(inverted_file)


def _positioned(values: Iterator[tuple[int, Any]], rows: np.ndarray) -> Iterator[tuple[int, Any]]:
    """(row, value) as (position, value), for the rows that are in `rows`."""
    pairs = list(values)
    if not pairs or not len(rows):
        return iter(())
    of = np.fromiter((row for row, _ in pairs), np.int64, len(pairs))
    found = np.minimum(np.searchsorted(rows, of), len(rows) - 1)
    known = rows[found] == of
    return (
        (position, value)
        for position, (_, value) in zip(found[known].tolist(), itertools.compress(pairs, known), strict=True)
    )


class EmbeddedView(View):
    """An embedded index at one moment."""

    def __init__(self, engine: EmbeddedEngine, database: Database, state: IndexState):
        self.engine = engine
        self.database = database
        self.state = state
        self.header = state.header

    def counts(self) -> Counts:
        snapshot = self.state.snapshot
        return Counts(len(snapshot), *(len(snapshot.sides[side].codes) for side in SIDES))

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
        stored = self.state.snapshot.sides[side]
        searched, indexes = (stored.codes, None) if where is None else self._subset(side, where)
        if top is None:
            assert radius is not None
            found, distances = codes_within(codes, searched, radius)
            return self._rows(side, found, indexes), distances
        inverted_file = None if where is not None or exact else self.engine.inverted_file(side, self.state)
        if inverted_file is not None:
            rows, distances = self._approximately_nearest(side, codes, top, inverted_file)
        else:
            found, distances = nearest_codes(codes, searched, top)
            rows = self._rows(side, found, indexes)
        return (rows, distances) if radius is None else cut_at_radius(rows, distances, radius)

    def _subset(self, side: str, where: Condition) -> tuple[np.ndarray, np.ndarray]:
        """The codes of the items that meet a condition, and where they are among all codes of the side.

        Searching a copy of the chosen codes is faster than asking for every code whether it is chosen, and services
        use the same few filters again and again.
        """
        with self.engine._lock:
            key = (side, where)
            subsets = self.state.subsets
            if key not in subsets:
                stored = self.state.snapshot.sides[side]
                mask = self._mask(where)
                indexes = np.flatnonzero(mask if stored.owners is None else mask[stored.owners])
                subsets[key] = stored.codes[indexes], indexes
                while len(subsets) > _FILTERS_KEPT:
                    subsets.pop(next(iter(subsets)))
            else:
                subsets[key] = subsets.pop(key)
            return subsets[key]

    def _mask(self, where: Condition) -> np.ndarray:
        def passing(comparison: Comparison) -> np.ndarray:
            if comparison.column in FIELDS:
                return self._passing_field(comparison)
            return self.state.column(comparison.column, comparison.kind, self.database).passing(comparison)

        return evaluate(where, passing)

    def _passing_field(self, comparison: Comparison) -> np.ndarray:
        """Ids, captions and pictures: they are too long to be held as columns."""
        snapshot = self.state.snapshot
        mask = np.zeros(len(snapshot), bool)
        if comparison.column == "id":
            if comparison.operator in ("=", "in"):
                rows = self.rows_of([str(value) for value in comparison.values])
                mask[snapshot.positions(rows[rows >= 0])] = True
                return mask
            if comparison.operator in ("is null", "is not null"):
                return mask if comparison.operator == "is null" else ~mask
            return passing_strings(comparison, snapshot.ids.take(np.arange(len(snapshot))))
        pairs = list(_positioned(self.database.field(comparison.column), snapshot.rows))
        positions = np.array([position for position, _ in pairs], np.int64)
        if comparison.operator in ("is null", "is not null"):
            mask[positions] = True
            return mask if comparison.operator == "is not null" else ~mask
        mask[positions[passing_strings(comparison, [text for _, text in pairs])]] = True
        return mask

    def _rows(self, side: str, found: np.ndarray, indexes: np.ndarray | None) -> np.ndarray:
        """Rows of found codes; -1 stays."""
        snapshot = self.state.snapshot
        if not found.size:
            return np.empty(found.shape, np.int64)
        of_side = found if indexes is None else np.where(found < 0, -1, indexes[found])
        positions = snapshot.sides[side].positions(of_side)
        return np.where(positions < 0, -1, snapshot.rows[positions])

    def _approximately_nearest(
        self, side: str, codes: np.ndarray, top: int, inverted_file: InvertedFile
    ) -> tuple[np.ndarray, np.ndarray]:
        snapshot = self.state.snapshot
        stored = snapshot.sides[side]
        rows_of_side = snapshot.rows if stored.owners is None else snapshot.rows[stored.owners]
        covered = int(np.searchsorted(rows_of_side, inverted_file.last_row, "right"))
        removed = len(inverted_file) - covered
        rows, distances = inverted_file.search(codes, min(top + removed, 2 * top + 100))
        if removed:
            gone = snapshot.positions(rows.ravel()).reshape(rows.shape) < 0
            rows, distances = np.where(gone, -1, rows), np.where(gone, -1, distances)
        later, later_distances = nearest_codes(codes, stored.codes[covered:], top)
        later_rows = rows_of_side[covered:][later] if later.size else later
        rows, distances = merge_nearest((rows, distances), (later_rows, later_distances), top)
        # Where the lists held too few items, all codes are searched: there must be `top` results if there are items.
        short = np.flatnonzero((rows[:, : min(top, len(rows_of_side))] < 0).any(axis=1))
        if rows.shape[1] < min(top, len(rows_of_side)):
            short = np.arange(len(codes))
        if len(short):
            found, exact = nearest_codes(codes[short], stored.codes, top)
            if rows.shape[1] < found.shape[1]:
                rows, distances = np.empty(found.shape, np.int64), np.empty(found.shape, np.int32)
            rows[short, : found.shape[1]], distances[short, : found.shape[1]] = self._rows(side, found, None), exact
        return rows, distances

    def codes(self, side: str, rows: np.ndarray) -> np.ndarray:
        stored = self.state.snapshot.sides[side]
        return stored.codes[stored.indexes(self.state.snapshot.positions(rows))]

    def features(self, side: str, rows: np.ndarray) -> np.ndarray:
        return self.database.features(side, np.asarray(rows), self.header.code_length)

    def has_side(self, side: str, rows: np.ndarray) -> np.ndarray:
        return self.state.snapshot.sides[side].indexes(self.state.snapshot.positions(rows)) >= 0

    def ids(self, rows: np.ndarray) -> list[str]:
        return self.state.snapshot.ids.take(self.state.snapshot.positions(rows))

    def ids_later(self, rows: np.ndarray) -> Callable[[], list[str]]:
        # Snapshots outlive views.
        return lambda: self.ids(rows)

    def items(self, rows: np.ndarray) -> list[StoredItem]:
        listed = np.asarray(rows).tolist()
        details = self.database.details(listed)
        return [
            StoredItem(row, name, *details.get(row, (None, None, {})))
            for row, name in zip(listed, self.ids(rows), strict=True)
        ]

    def rows_of(self, ids: list[str]) -> np.ndarray:
        snapshot = self.state.snapshot
        with self.engine._lock:
            return self.engine._ids(self.state).find(ids, lambda rows: snapshot.positions(rows) >= 0)

    def summarise(self, name: str, kind: str, most: int) -> ColumnSummary:
        with self.engine._lock:
            return self.state.column(name, kind, self.database).summary(name, most)

    def all_rows(self, where: Condition | None = None) -> np.ndarray:
        rows = self.state.snapshot.rows
        if where is None:
            return rows
        with self.engine._lock:
            return rows[self._mask(where)]
