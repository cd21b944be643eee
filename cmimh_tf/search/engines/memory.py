"""The part of an embedded index that is held in memory: rows, ids and codes as arrays.

A `Snapshot` never changes, so that any number of threads can search it. `Memory` makes the next snapshot: new items go
behind the old ones into the same buffers, beyond the views of older snapshots. Removing items copies the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cmimh_tf.search.items import SIDES


@dataclass(frozen=True, eq=False)
class Strings:
    """N strings as one array.

    Attributes:
        characters: uint8, the UTF-8 of all strings without anything between them.
        ends: int64 [N], where each string ends.
    """

    characters: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends)

    @classmethod
    def empty(cls) -> Strings:
        return cls(np.empty(0, np.uint8), np.empty(0, np.int64))

    @classmethod
    def from_joined(cls, joined: bytes) -> Strings:
        """Strings that were joined by NUL characters; at least one."""
        characters = np.frombuffer(joined, np.uint8)
        separators = np.flatnonzero(characters == 0)
        ends = np.append(separators, len(characters)) - np.arange(len(separators) + 1)
        return cls(characters[characters != 0], ends.astype(np.int64))

    def joined(self) -> bytes:
        """The strings, joined by NUL characters."""
        out = np.zeros(len(self.characters) + max(0, len(self) - 1), np.uint8)
        out[np.arange(len(self.characters)) + np.repeat(np.arange(len(self)), self.lengths())] = self.characters
        return out.tobytes()

    def lengths(self) -> np.ndarray:
        """int64 [N], in bytes."""
        return np.diff(self.ends, prepend=0)

    def take(self, positions: np.ndarray) -> list[str]:
        """The strings at some positions."""
        if not len(positions):
            return []
        starts = np.where(positions > 0, self.ends[positions - 1], 0)
        # One gather and one decoding for all strings are faster than a slice for each. Each string is gathered with the
        # character behind it, which a NUL then takes the place of.
        sizes = self.ends[positions] - starts + 1
        ends = np.cumsum(sizes)
        places = np.repeat(starts - (ends - sizes), sizes)
        places += np.arange(len(places))
        joined = self.characters.take(places, mode="clip")
        joined[ends - 1] = 0
        return joined[:-1].tobytes().decode("utf-8").split("\0")

    def keep(self, mask: np.ndarray) -> Strings:
        """The strings where `mask`, bool [N], is true."""
        lengths = self.lengths()
        return Strings(self.characters[np.repeat(mask, lengths)], np.cumsum(lengths[mask]))

    def slice(self, start: int, stop: int) -> Strings:
        """The strings from `start` to before `stop`."""
        first = int(self.ends[start - 1]) if start else 0
        ends = self.ends[start:stop]
        return Strings(self.characters[first : int(ends[-1]) if len(ends) else first], ends - first)

    def hashes(self) -> np.ndarray:
        """uint64 [N], equal for equal strings and almost never for others."""
        lengths = self.lengths()
        width = -(-int(lengths.max(initial=1)) // 8) * 8
        padded = np.zeros((len(self), width), np.uint8)
        padded[np.arange(width) < lengths[:, np.newaxis]] = self.characters
        mixed = lengths.astype(np.uint64)
        for position, word in enumerate(padded.view(np.uint64).T):
            # The steps of MurmurHash3's finalizer between words: every bit of the input reaches the whole result.
            after = (mixed ^ word) * np.uint64(0xFF51AFD7ED558CCD)
            after ^= after >> np.uint64(33)
            after *= np.uint64(0xC4CEB9FE1A85EC53)
            after ^= after >> np.uint64(29)
            # A hash must not depend on the longest string beside it.
            mixed = np.where(lengths > 8 * position, after, mixed)
        return mixed


@dataclass(frozen=True, eq=False)
class Side:
    """The codes of one side.

    Attributes:
        codes: uint8 [M, L/8].
        owners: int64 [M], ascending positions of the items that have them; None if every item has one.
    """

    codes: np.ndarray
    owners: np.ndarray | None

    def indexes(self, positions: np.ndarray) -> np.ndarray:
        """Where in `codes` the items at some positions are; -1 for items without this side."""
        if self.owners is None:
            return positions
        if not len(self.owners):
            return np.full(len(positions), -1)
        found = np.minimum(np.searchsorted(self.owners, positions), len(self.owners) - 1)
        return np.where(self.owners[found] == positions, found, -1)

    def positions(self, indexes: np.ndarray) -> np.ndarray:
        """The positions of the items with the codes at `indexes`; -1 stays."""
        if self.owners is None:
            return indexes
        return np.where(indexes < 0, -1, self.owners[indexes]) if len(self.owners) else indexes


@dataclass(frozen=True, eq=False)
class Items:
    """N items: what is read from the store, and appended to a snapshot.

    Attributes:
        rows: int64 [N], ascending.
        ids: N strings.
        sides: for "image" and "text".
    """

    rows: np.ndarray
    ids: Strings
    sides: dict[str, Side]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def none(cls, code_length: int) -> Items:
        codes = np.empty((0, code_length // 8), np.uint8)
        return cls(np.empty(0, np.int64), Strings.empty(), {side: Side(codes, None) for side in SIDES})

    def keep(self, mask: np.ndarray) -> Items:
        """The items where `mask`, bool [N], is true."""
        if mask.all():
            return self
        moved = np.cumsum(mask) - 1
        sides = {}
        for name, side in self.sides.items():
            if side.owners is None:
                sides[name] = Side(side.codes[mask], None)
            else:
                kept = mask[side.owners]
                sides[name] = Side(side.codes[kept], moved[side.owners[kept]])
        return Items(self.rows[mask], self.ids.keep(mask), sides)


@dataclass(frozen=True, eq=False)
class Snapshot(Items):
    """The items of an index at one moment.

    Attributes:
        change: the number of the change after which this was the state.
        loaded: what was computed from this snapshot and is worth keeping, such as filter columns.
    """

    change: int = 0
    loaded: dict[str, Any] = field(default_factory=dict)

    @property
    def last_row(self) -> int:
        """The last row; 0 if there is none."""
        return int(self.rows[-1]) if len(self.rows) else 0

    def positions(self, rows: np.ndarray) -> np.ndarray:
        """The positions of rows; -1 for rows that are not there."""
        rows = np.asarray(rows, np.int64)
        if not len(self.rows):
            return np.full(len(rows), -1)
        first, last = int(self.rows[0]), int(self.rows[-1])
        if last - first + 1 == len(self.rows):
            # Without gaps no search is needed.
            return np.where((rows >= first) & (rows <= last), rows - first, -1)
        found = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[found] == rows, found, -1)


class Memory:
    """Makes one snapshot after the other.

    Args:
        items: the first ones.
        change: the state of the store that they are of.
    """

    def __init__(self, items: Items, change: int):
        self._start(items, change)

    def _start(self, items: Items, change: int) -> None:
        self._rows, self._id_bytes, self._id_ends = (
            _Buffer(items.rows),
            _Buffer(items.ids.characters),
            _Buffer(items.ids.ends),
        )
        self._codes = {name: _Buffer(side.codes) for name, side in items.sides.items()}
        # A side that every item has needs no list of owners.
        self._owners = {
            name: None if side.owners is None else _Buffer(side.owners) for name, side in items.sides.items()
        }
        self.snapshot = self._make(change)

    def _make(self, change: int) -> Snapshot:
        sides = {}
        for name in SIDES:
            owners = self._owners[name]
            sides[name] = Side(self._codes[name].view(), None if owners is None else owners.view())
        ids = Strings(self._id_bytes.view(), self._id_ends.view())
        return Snapshot(self._rows.view(), ids, sides, change)

    def update(self, keep: np.ndarray | None, new: Items, change: int) -> Snapshot:
        """The next snapshot.

        Args:
            keep: bool [N], which items of the last snapshot stay; None for all.
            new: items to append, with larger rows.
            change: the state of the store that this is.
        """
        if keep is not None and not keep.all():
            self._start(self.snapshot.keep(keep), change)
        before = len(self.snapshot)
        if len(new):
            self._rows.append(new.rows)
            self._id_ends.append(new.ids.ends + len(self._id_bytes.view()))
            self._id_bytes.append(new.ids.characters)
            for name, side in new.sides.items():
                self._append_side(name, side, before, len(new))
        self.snapshot = self._make(change)
        return self.snapshot

    def _append_side(self, name: str, side: Side, before: int, count: int) -> None:
        owners = self._owners[name]
        if owners is None and side.owners is not None:
            owners = self._owners[name] = _Buffer(np.arange(before))
        if owners is not None:
            owners.append((np.arange(count) if side.owners is None else side.owners) + before)
        self._codes[name].append(side.codes)


class _Buffer:
    """An array that grows at its end; earlier views keep what they show."""

    def __init__(self, start: np.ndarray):
        self._array = start
        self._used = len(start)

    def view(self) -> np.ndarray:
        return self._array[: self._used]

    def append(self, rows: np.ndarray) -> None:
        needed = self._used + len(rows)
        if needed > len(self._array) or not self._array.flags.writeable:
            grown = np.empty((max(needed, self._used * 5 // 4), *self._array.shape[1:]), self._array.dtype)
            grown[: self._used] = self.view()
            self._array = grown
        self._array[self._used : needed] = rows
        self._used = needed


class IdTable:
    """Finds rows by id, with sorted hashes: one large part for the first items, and few parts for what came later."""

    def __init__(self) -> None:
        self._parts: list[_IdPart] = []
        self.last_row = 0

    def add(self, ids: Strings, rows: np.ndarray) -> None:
        """Adds items, whose rows are larger than those before."""
        if not len(rows):
            return
        part = _IdPart(ids, rows)
        parts = list(self._parts)
        # The first part shares the ids of a snapshot; later ones are merged so that they stay few.
        while len(parts) > 1 and len(parts[-1].rows) <= 2 * len(part.rows):
            part = parts.pop().merged(part)
        # Other threads may be reading the old list.
        self._parts = [*parts, part]
        self.last_row = int(rows[-1])

    def catch_up(self, snapshot: Snapshot) -> None:
        """Adds the items of a snapshot that are not in the table yet."""
        start = int(np.searchsorted(snapshot.rows, self.last_row, "right"))
        self.add(snapshot.ids.slice(start, len(snapshot)), snapshot.rows[start:])

    def find(self, ids: Sequence[str], is_alive: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The rows, int64 [n], of ids; -1 for unknown ones.

        Args:
            ids: n strings.
            is_alive: which of some rows, int64 [m], have not been removed: bool [m].
        """
        found = np.full(len(ids), -1, np.int64)
        if not len(ids):
            return found
        hashes = Strings.from_joined("\0".join(ids).encode()).hashes()
        # Searching for sorted values is faster, as neighbours are in the cache.
        order = np.argsort(hashes)
        for part in self._parts:
            for index, row, name in part.candidates(hashes[order], is_alive):
                if name == ids[order[index]]:
                    found[order[index]] = row
        return found


class _IdPart:
    """Some items by the hashes of their ids.

    Args:
        ids: of the items.
        rows: of the items.
        hashes: of the ids, sorted; computed if it is None.
        order: int64, the places of the items in the order of the hashes.
    """

    def __init__(self, ids: Strings, rows: np.ndarray, hashes: np.ndarray | None = None, order: Any = None):
        self.ids = ids
        self.rows = rows
        if hashes is None:
            blocks = [ids.slice(start, start + 65_536).hashes() for start in range(0, len(ids), 65_536)]
            unsorted = np.concatenate(blocks)
            order = np.argsort(unsorted, kind="stable")
            hashes = unsorted[order]
        self.hashes = hashes
        self.order = order

    def merged(self, later: _IdPart) -> _IdPart:
        ids = Strings(
            np.concatenate([self.ids.characters, later.ids.characters]),
            np.concatenate([self.ids.ends, later.ids.ends + len(self.ids.characters)]),
        )
        hashes = np.concatenate([self.hashes, later.hashes])
        order = np.concatenate([self.order, later.order + len(self.rows)])
        # A stable sort of two sorted runs only merges them.
        merged = np.argsort(hashes, kind="stable")
        return _IdPart(ids, np.concatenate([self.rows, later.rows]), hashes[merged], order[merged])

    def candidates(
        self, hashes: np.ndarray, is_alive: Callable[[np.ndarray], np.ndarray]
    ) -> Iterator[tuple[int, int, str]]:
        """(index, row, id) of the items with one of the hashes, which are sorted, that have not been removed."""
        first = np.searchsorted(self.hashes, hashes)
        wanted = np.flatnonzero(self.hashes[np.minimum(first, len(self.hashes) - 1)] == hashes)
        if not len(wanted):
            return
        count = np.searchsorted(self.hashes, hashes[wanted], "right") - first[wanted]
        # Nearly always one candidate for each; an item that was replaced has more.
        indexes = np.repeat(wanted, count)
        steps = np.arange(len(indexes)) - np.repeat(np.cumsum(count) - count, count)
        places = self.order[first[indexes] + steps]
        rows = self.rows[places]
        alive = is_alive(rows)
        yield from zip(indexes[alive].tolist(), rows[alive].tolist(), self.ids.take(places[alive]), strict=True)
