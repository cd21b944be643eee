"""The SQLite file of an embedded index.

    settings  the header, and counters: `change` grows with every commit, `next_row` with every item; and `checksum`
    blocks    ids and codes of up to 65,536 items each, as arrays
    details   caption, picture and metadata, for items that have any
    removed   rows of the blocks that were removed, and by which change

Arrays in blocks make a million items load in a fraction of a second. Small blocks are merged as they come, so that
adding items one by one does not leave as many blocks. Every block and every row of `details` has a checksum, which is
compared when it is read; another one covers the settings, the list of the blocks and the removed rows.
"""

from __future__ import annotations

import errno
import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from cmimh_tf.search.engines.interface import Header, IndexDamaged, StorageError, stored_items
from cmimh_tf.search.engines.memory import Items, Side, Snapshot, Strings
from cmimh_tf.search.items import SIDES, ItemBatch, Metadata

_LARGEST_BLOCK = 65_536
_HAS = {"image": 1, "text": 2}
_HAS_DETAILS = 4
# Removed rows stay in their blocks until they are this share of all, and at least so many.
_REMOVED_SHARE = 0.25
_REMOVED_ROWS = 10_000
_WRITER_CACHE_KIB = 64 * 1024
_SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE blocks (
    first_row INTEGER PRIMARY KEY, last_row INTEGER NOT NULL, items INTEGER NOT NULL, rows BLOB NOT NULL,
    ids BLOB NOT NULL, sides BLOB NOT NULL, image BLOB NOT NULL, text BLOB NOT NULL, image_features BLOB NOT NULL,
    text_features BLOB NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE details (
    row INTEGER PRIMARY KEY, caption TEXT, picture TEXT, metadata TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE removed (row INTEGER PRIMARY KEY, change INTEGER NOT NULL);
CREATE INDEX removed_by_change ON removed (change);
"""
_ARRAYS = ("rows", "ids", "sides", "image", "text", "image_features", "text_features")
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
# What SQLite says of a file that is damaged, or empty.
_DAMAGE_SIGNS = ("malformed", "not a database", "no such table", "no such column", "unsupported file format")
Block = dict[str, bytes]


@contextmanager
def storage_errors(address: str) -> Iterator[None]:
    """Turns errors of SQLite and of the disk into one sentence each."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        message = str(error)
        if "full" in message:
            raise StorageError(
                f"{address} could not be written because the disk is full. The index is as it was before: free some "
                "space and run the command again."
            ) from error
        if any(sign in message for sign in _DAMAGE_SIGNS):
            raise IndexDamaged(f"{address} is damaged ({message}). Build it again, or restore a copy.") from error
        raise StorageError(f"{address} could not be read or written ({message}). The index is unchanged.") from error
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise StorageError(
            f"{address} could not be written ({error.strerror}). The index is as it was before."
        ) from error


class Database:
    """A connection to the file of an index, for one thread at a time.

    Args:
        path: the file.
        writable: whether to open it for changes.
    """

    def __init__(self, path: Path, writable: bool = False):
        self.path = path
        self.connection = _connect(path, writable)
        # First and last rows of blocks that are known to have no details.
        self._without_details: set[tuple[int, int]] = set()
        self._check_size()

    @classmethod
    def create(cls, path: Path, header: Header) -> Database:
        """Makes an empty file."""
        path.touch()
        database = cls(path, writable=True)
        database.connection.executescript(_SCHEMA)
        with database.transaction():
            for name, value in (("change", 0), ("next_row", 1), ("compacted", 0)):
                database.connection.execute("INSERT INTO settings VALUES (?, ?)", (name, value))
            database.set_header(header)
        return database

    def _check_size(self) -> None:
        """Raises IndexDamaged if the last page was cut: SQLite would read zeros for what is missing."""
        log = self.path.with_name(f"{self.path.name}-wal")
        if log.exists() and log.stat().st_size:
            return  # After a crash the log may hold what a page lacks.
        (page_size,) = self.connection.execute("PRAGMA page_size").fetchone()
        if self.path.stat().st_size % page_size:
            self.connection.close()
            raise self._damaged("its last page is cut")

    def close(self) -> None:
        """Closes the connection."""
        self.connection.close()

    def move_log(self) -> None:
        """Moves the log into the file as far as readers permit, for those who can only read the file itself."""
        # The changes are stored already: a full disk, or a reader, only keeps them in the log for longer.
        with suppress(sqlite3.DatabaseError):
            self.connection.execute("PRAGMA busy_timeout = 0")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Changes that are stored together, or not at all if the block raises."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            if not self._has_checksum():
                self.set_setting("removed_sum", self._removed_sum())
            yield
            self.set_setting("checksum", self._checksum(self.setting("removed_sum")))
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Reads that all see the same state."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK")

    def setting(self, name: str) -> Any:
        """A counter, or the text of the header; None for what an earlier version did not store."""
        found = self.connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        if found is None and name in ("change", "next_row", "compacted", "header"):
            raise self._damaged(f"it has no {name}")
        return None if found is None else found[0]

    def set_setting(self, name: str, value: Any) -> None:
        self.connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def header(self) -> Header:
        """What the index says about itself."""
        try:
            return Header.from_json(json.loads(self.setting("header")), str(self.path))
        except (TypeError, ValueError) as error:
            raise error if isinstance(error, IndexDamaged) else self._damaged(str(error)) from error

    def set_header(self, header: Header) -> None:
        self.set_setting("header", json.dumps(header.to_json(), ensure_ascii=False))

    def load(self, code_length: int) -> tuple[Items, int]:
        """All items, and the change that they are of."""
        items = self._items("SELECT * FROM blocks ORDER BY first_row", (), code_length)
        removed = self._rows("SELECT row FROM removed ORDER BY row")
        self._check_settings(self._removed_sum())
        return items.keep(~np.isin(items.rows, removed, assume_unique=True)), self.setting("change")

    def load_since(self, snapshot: Snapshot, code_length: int) -> tuple[np.ndarray | None, Items, int] | None:
        """What happened after a snapshot: which of its items stay, the new ones, and the change.

        Returns:
            None if the store no longer has the list of what was removed; then all items must be loaded.
        """
        if snapshot.change < self.setting("compacted"):
            return None
        self._check_settings(self.setting("removed_sum"))
        last = snapshot.last_row
        removed = self._rows("SELECT row FROM removed WHERE change > ? ORDER BY row", snapshot.change)
        keep = ~np.isin(snapshot.rows, removed, assume_unique=True) if len(removed) else None
        new = self._items("SELECT * FROM blocks WHERE last_row > ? ORDER BY first_row", (last,), code_length)
        gone = self._rows("SELECT row FROM removed WHERE row > ? ORDER BY row", last)
        fresh = (new.rows > last) & ~np.isin(new.rows, gone, assume_unique=True)
        return keep, new.keep(fresh), self.setting("change")

    def details(self, rows: Sequence[int]) -> dict[int, tuple[str | None, str | None, Metadata]]:
        """Caption, picture and metadata by row, of rows that have any."""
        found = self.connection.execute(
            "SELECT row, caption, picture, metadata, checksum FROM details "
            "WHERE row IN (SELECT value FROM json_each(?))",
            (json.dumps(rows),),
        )
        details = {}
        for row, caption, picture, metadata, checksum in found:
            if _detail_checksum(row, caption, picture, metadata) != checksum:
                raise self._damaged_details(row)
            details[row] = caption, picture, json.loads(metadata)
        if len(details) < len(rows):
            self._check_absent(np.array([row for row in rows if row not in details], np.int64))
        return details

    def _check_absent(self, rows: np.ndarray) -> None:
        """Raises IndexDamaged if one of the rows should have details: a damaged page may lose them without a sign."""
        for first, last in self.connection.execute("SELECT first_row, last_row FROM blocks").fetchall():
            inside = rows[(rows >= first) & (rows <= last)]
            if not len(inside) or (first, last) in self._without_details:
                continue
            query = "SELECT rows, sides FROM blocks WHERE first_row = ?"
            stored, sides = self.connection.execute(query, (first,)).fetchone()
            flags = np.frombuffer(sides, np.uint8) & _HAS_DETAILS
            if not flags.any():
                self._without_details.add((first, last))
            for row in inside[flags[np.searchsorted(np.frombuffer(stored, np.int64), inside)] > 0].tolist():
                if not self.connection.execute("SELECT 1 FROM removed WHERE row = ?", (row,)).fetchone():
                    raise self._damaged_details(row)

    def column(self, name: str, after_row: int) -> Iterator[tuple[int, Any]]:
        """(row, value) of rows after `after_row` that have a metadata column; labels as JSON."""
        return self._checked(
            "SELECT row, json_extract(metadata, ?) AS value, is_intact(row, caption, picture, metadata, checksum) "
            "FROM details WHERE row > ? ORDER BY row",
            (f'$."{name}"', after_row),
        )

    def field(self, name: str) -> Iterator[tuple[int, str]]:
        """(row, value) of rows that have a caption or a picture."""
        assert name in ("caption", "picture")
        return self._checked(
            f"SELECT row, {name}, is_intact(row, caption, picture, metadata, checksum) FROM details ORDER BY row", ()
        )

    def _checked(self, query: str, parameters: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
        """(row, value) of rows that have a value, after comparing the checksum of each row."""
        for row, value, is_intact in self.connection.execute(query, parameters):
            if not is_intact:
                raise self._damaged_details(row)
            if value is not None:
                yield row, value

    def features(self, side: str, rows: np.ndarray, code_length: int) -> np.ndarray:
        """Real-valued codes, float16 [n, L], of rows that have this side."""
        out = np.empty((len(rows), code_length), np.float16)
        done = np.zeros(len(rows), bool)
        for first, last in self.connection.execute("SELECT first_row, last_row FROM blocks ORDER BY first_row"):
            inside = np.flatnonzero((rows >= first) & (rows <= last))
            if not len(inside):
                continue
            block = self._block(first)
            has_side = (np.frombuffer(block["sides"], np.uint8) & _HAS[side]) > 0
            present = np.frombuffer(block["rows"], np.int64)[has_side]
            vectors = np.frombuffer(block[f"{side}_features"], np.float16).reshape(-1, code_length)
            out[inside] = vectors[np.searchsorted(present, rows[inside])]
            done[inside] = True
        assert done.all()
        return out

    # Changes, inside a transaction.

    def append(self, batch: ItemBatch, first_row: int) -> None:
        """Stores items under the rows from `first_row` on."""
        rows = np.arange(first_row, first_row + len(batch))
        details = list(_detail_rows(batch, first_row))
        if details:
            self.connection.executemany("INSERT INTO details VALUES (?, ?, ?, ?, ?)", details)
        with_details = np.isin(rows, [detail[0] for detail in details]) if details else np.zeros(len(rows), bool)
        for start in range(0, len(batch), _LARGEST_BLOCK):
            part = slice(start, start + _LARGEST_BLOCK)
            block = _encode(batch.slice(start, start + _LARGEST_BLOCK), rows[part], with_details[part])
            self._store(self._merged(block))
        self.set_setting("next_row", first_row + len(batch))

    def remove(self, rows: np.ndarray, change: int) -> None:
        """Marks rows as removed, and deletes their details."""
        listed = json.dumps(rows.tolist())
        self.connection.execute("INSERT INTO removed SELECT value, ? FROM json_each(?)", (change, listed))
        self.set_setting("removed_sum", self.setting("removed_sum") + _sum_of(rows, np.full(len(rows), change)))
        self.connection.execute("DELETE FROM details WHERE row IN (SELECT value FROM json_each(?))", (listed,))

    def compact(self, change: int) -> None:
        """Rewrites the blocks without removed rows once these are many."""
        (removed,) = self.connection.execute("SELECT count(*) FROM removed").fetchone()
        (stored,) = self.connection.execute("SELECT coalesce(sum(items), 0) FROM blocks").fetchone()
        if removed < max(_REMOVED_ROWS, _REMOVED_SHARE * stored):
            return
        gone = self._rows("SELECT row FROM removed ORDER BY row")
        for (first,) in self.connection.execute("SELECT first_row FROM blocks ORDER BY first_row").fetchall():
            block = self._block(first)
            keep = ~np.isin(np.frombuffer(block["rows"], np.int64), gone, assume_unique=True)
            if not keep.all():
                self.connection.execute("DELETE FROM blocks WHERE first_row = ?", (first,))
                if keep.any():
                    self._store(_filtered(block, keep))
        self.connection.execute("DELETE FROM removed")
        self.set_setting("removed_sum", 0)
        self.set_setting("compacted", change)

    def copy_with_codes(self, source: Path, header: Header, batches: Iterator[ItemBatch]) -> None:
        """Fills an empty file with the items of another one and new codes, which come in the order of the rows."""
        self.connection.execute("ATTACH DATABASE ? AS source", (_address(source, "mode=ro"),))
        with self.transaction():
            for name in ("change", "next_row"):
                (value,) = self.connection.execute(
                    "SELECT value FROM source.settings WHERE name = ?", (name,)
                ).fetchone()
                self.set_setting(name, value)
            self.set_setting("compacted", self.setting("change"))
            gone = self._rows("SELECT row FROM source.removed ORDER BY row")
            rows = [
                np.frombuffer(own, np.int64)
                for (own,) in self.connection.execute("SELECT rows FROM source.blocks ORDER BY first_row")
            ]
            remaining = np.concatenate(rows or [np.empty(0, np.int64)])
            remaining = remaining[~np.isin(remaining, gone, assume_unique=True)]
            with_details = np.isin(remaining, self._rows("SELECT row FROM source.details ORDER BY row"))
            done = 0
            for batch in batches:
                part = slice(done, done + len(batch))
                self._store(_encode(batch, remaining[part], with_details[part]))
                done += len(batch)
            if done != len(remaining):
                raise ValueError(f"`batches` must hold {len(remaining)} items. Received: {done}.")
            self.connection.execute("INSERT INTO details SELECT * FROM source.details")
            self.set_header(header)
        self.connection.execute("DETACH DATABASE source")

    def verify(self) -> list[str]:
        """One sentence for each problem, after reading everything."""
        problems = [f"SQLite: {text}." for (text,) in self.connection.execute("PRAGMA integrity_check") if text != "ok"]
        code_length = self.header().code_length
        gone = self._rows("SELECT row FROM removed ORDER BY row")
        last = 0
        with_details: list[np.ndarray] = []
        hashes: list[np.ndarray] = []
        for (first,) in self.connection.execute("SELECT first_row FROM blocks ORDER BY first_row").fetchall():
            block = self._stored_block(first)
            try:
                items = _decode(block, code_length)
            except ValueError:
                items = None
            name = f"Items {first:,} to {block['last_row']:,}"
            if items is None or _checksum(block) != block["checksum"]:
                problems.append(f"{name} do not match their checksum.")
                continue
            if first <= last or not (np.diff(items.rows) > 0).all() or items.rows[-1] != block["last_row"]:
                problems.append(f"{name} are out of order.")
            last = int(block["last_row"])
            keep = ~np.isin(items.rows, gone, assume_unique=True)
            flags = np.frombuffer(block["sides"], np.uint8)
            with_details.append(items.rows[keep & ((flags & _HAS_DETAILS) > 0)])
            hashes.append(items.keep(keep).ids.hashes())
        if last >= self.setting("next_row"):
            problems.append(f"The next row is {self.setting('next_row'):,}, but there is a row {last:,}.")
        every = np.concatenate(hashes or [np.empty(0, np.uint64)])
        if len(np.unique(every)) < len(every):
            problems.append(f"{len(every) - len(np.unique(every)):,} ids are there twice.")
        return problems + self._verify_details(np.concatenate(with_details or [np.empty(0, np.int64)]))

    def _verify_details(self, expected: np.ndarray) -> list[str]:
        problems = []
        found = []
        query = "SELECT row, caption, picture, metadata, checksum FROM details ORDER BY row"
        for row, caption, picture, metadata, checksum in self.connection.execute(query):
            found.append(row)
            if _detail_checksum(row, caption, picture, metadata) != checksum:
                problems.append(f"Caption, picture or metadata of item {row:,} do not match their checksum.")
        if not np.array_equal(np.array(found, np.int64), expected):
            problems.append(f"Captions and metadata must be there for {len(expected):,} items, found {len(found):,}.")
        return problems

    def _merged(self, block: Block) -> Block:
        """`block` together with the last stored ones, if these are small; they are deleted."""
        while True:
            last = self.connection.execute(
                "SELECT first_row, items FROM blocks ORDER BY first_row DESC LIMIT 1"
            ).fetchone()
            count = len(block["sides"])
            if last is None or last[1] > 2 * count or last[1] + count > _LARGEST_BLOCK:
                return block
            before = self._block(last[0])
            self.connection.execute("DELETE FROM blocks WHERE first_row = ?", (last[0],))
            joined = {name: before[name] + block[name] for name in _ARRAYS}
            joined["ids"] = before["ids"] + b"\0" + block["ids"]
            block = joined

    def _store(self, block: Block) -> None:
        rows = np.frombuffer(block["rows"], np.int64)
        values = (int(rows[0]), int(rows[-1]), len(rows), *(block[name] for name in _ARRAYS), _checksum(block))
        self.connection.execute(f"INSERT INTO blocks VALUES ({', '.join('?' * len(values))})", values)

    def _stored_block(self, first_row: int) -> dict[str, Any]:
        cursor = self.connection.execute("SELECT * FROM blocks WHERE first_row = ?", (first_row,))
        return dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True))

    def _block(self, first_row: int) -> dict[str, Any]:
        return self._intact(self._stored_block(first_row))

    def _intact(self, block: dict[str, Any]) -> dict[str, Any]:
        if _checksum(block) != block["checksum"]:
            raise self._damaged(f"items {block['first_row']:,} to {block['last_row']:,} do not match their checksum")
        return block

    def _items(self, query: str, parameters: tuple[int, ...], code_length: int) -> Items:
        cursor = self.connection.execute(query, parameters)
        names = [column[0] for column in cursor.description]
        blocks = (self._intact(dict(zip(names, values, strict=True))) for values in cursor)
        try:
            parts = [_decode(block, code_length) for block in blocks]
        except ValueError as error:
            raise error if isinstance(error, IndexDamaged) else self._damaged(str(error)) from error
        return parts[0] if len(parts) == 1 else _concatenated(parts, code_length)

    def _checksum(self, removed_sum: int) -> str:
        """Of the settings, the blocks without their arrays, and the removed rows, whose sum is given."""
        settings = [self.setting(name) for name in ("change", "next_row", "compacted", "header")]
        blocks = self.connection.execute("SELECT first_row, last_row, items FROM blocks ORDER BY first_row").fetchall()
        return f"{settings[0]} {zlib.crc32(repr((settings, blocks, removed_sum)).encode())}"

    def _has_checksum(self) -> bool:
        """Whether the checksum is of the last change: earlier versions do not renew it."""
        stored = self.setting("checksum")
        return stored is not None and str(stored).split(" ")[0] == str(self.setting("change"))

    def _check_settings(self, removed_sum: int) -> None:
        if self._has_checksum() and self.setting("checksum") != self._checksum(removed_sum):
            raise self._damaged("the settings, or the lists of blocks and removed items, do not match their checksum")

    def _removed_sum(self) -> int:
        found = np.array(self.connection.execute("SELECT row, change FROM removed").fetchall(), np.int64)
        return _sum_of(*found.T) if len(found) else 0

    def _damaged_details(self, row: int) -> IndexDamaged:
        return self._damaged(f"caption, picture or metadata of item {row:,} do not match their checksum")

    def _damaged(self, reason: str) -> IndexDamaged:
        return IndexDamaged(f"{self.path} is damaged ({reason}). Build the index again, or restore a copy.")

    def _rows(self, query: str, *parameters: int) -> np.ndarray:
        return np.array([row for (row,) in self.connection.execute(query, parameters)], np.int64)


def _address(path: Path, options: str) -> str:
    return f"file:{quote(str(path.absolute()))}?{options}"


def _connect(path: Path, writable: bool) -> sqlite3.Connection:
    def connect(options: str) -> sqlite3.Connection:
        # Changes are begun and committed by hand. Each connection is used by one thread at a time.
        connection = sqlite3.connect(
            _address(path, options), uri=True, isolation_level=None, check_same_thread=False, timeout=60
        )
        connection.create_function("is_intact", 5, _is_intact, deterministic=True)
        return connection

    if not writable:
        connection = connect("mode=ro")
        try:
            connection.execute("SELECT count(*) FROM sqlite_master")
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            if "unable to open" not in str(error):
                raise
            # Readers share a small file beside the database. In a folder that cannot be written nothing changes either.
            return connect("immutable=1")
    connection = connect("mode=rw")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
    return connection


def _encode(batch: ItemBatch, rows: np.ndarray, with_details: np.ndarray) -> Block:
    sides = np.where(with_details, _HAS_DETAILS, 0).astype(np.uint8)
    block = {"rows": rows.astype(np.int64).tobytes(), "ids": "\0".join(batch.ids).encode()}
    for side in SIDES:
        block[side] = block[f"{side}_features"] = b""
        if side in batch.codes:
            present = batch.present[side]
            sides[present] |= _HAS[side]
            block[side] = batch.codes[side][present].tobytes()
            if side in batch.features:
                block[f"{side}_features"] = batch.features[side][present].tobytes()
    return {**block, "sides": sides.tobytes()}


def _decode(block: dict[str, Any], code_length: int) -> Items:
    sides = np.frombuffer(block["sides"], np.uint8)
    decoded = {}
    for side in SIDES:
        present = (sides & _HAS[side]) > 0
        codes = np.frombuffer(block[side], np.uint8).reshape(-1, code_length // 8)
        if len(codes) != present.sum():
            raise ValueError(f"A block must have {present.sum()} {side} codes. Received: {len(codes)}.")
        decoded[side] = Side(codes, None if present.all() else np.flatnonzero(present))
    ids = Strings.from_joined(block["ids"])
    rows = np.frombuffer(block["rows"], np.int64)
    if not len(ids) == len(rows) == len(sides):
        raise ValueError(f"A block must have {len(rows)} ids. Received: {len(ids)}.")
    return Items(rows, ids, decoded)


def _filtered(block: dict[str, Any], keep: np.ndarray) -> Block:
    """A block without some of its items."""
    sides = np.frombuffer(block["sides"], np.uint8)
    kept: Block = {
        "rows": np.frombuffer(block["rows"], np.int64)[keep].tobytes(),
        "ids": Strings.from_joined(block["ids"]).keep(keep).joined(),
        "sides": sides[keep].tobytes(),
    }
    for side in SIDES:
        present = (sides & _HAS[side]) > 0
        for name in (side, f"{side}_features"):
            values = np.frombuffer(block[name], np.uint8)
            kept[name] = values.reshape(int(present.sum()), -1)[keep[present]].tobytes() if len(values) else b""
    return kept


def _concatenated(parts: list[Items], code_length: int) -> Items:
    if not parts:
        return Items.none(code_length)
    starts = np.cumsum([0, *(len(part) for part in parts)])
    bytes_before = np.cumsum([0, *(len(part.ids.characters) for part in parts)])
    ids = Strings(
        np.concatenate([part.ids.characters for part in parts]),
        np.concatenate([part.ids.ends + offset for part, offset in zip(parts, bytes_before[:-1], strict=True)]),
    )
    sides = {}
    for name in SIDES:
        codes = np.concatenate([part.sides[name].codes for part in parts])
        owners = None
        if any(part.sides[name].owners is not None for part in parts):
            owners = np.concatenate(
                [
                    start + (np.arange(len(part)) if part.sides[name].owners is None else part.sides[name].owners)
                    for part, start in zip(parts, starts[:-1], strict=True)
                ]
            )
        sides[name] = Side(codes, owners)
    return Items(np.concatenate([part.rows for part in parts]), ids, sides)


def _checksum(block: dict[str, Any]) -> int:
    checksum = 0
    for name in _ARRAYS:
        checksum = zlib.crc32(block[name], zlib.crc32(name.encode(), checksum))
    return checksum


def _sum_of(rows: np.ndarray, changes: np.ndarray) -> int:
    """A checksum of removed rows in any order; that of two sets of rows is the sum of theirs."""
    # SplitMix64 of each pair, of which 32 bits are kept: the sum fits into SQLite's integers.
    mixed = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + changes.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return int((mixed >> np.uint64(32)).sum())


def _detail_rows(batch: ItemBatch, first_row: int) -> Iterator[tuple[int, str | None, str | None, str, int]]:
    if not (batch.captions or batch.pictures or batch.metadata):
        return
    for item in stored_items(batch, first_row):
        if item.caption is not None or item.picture is not None or item.metadata:
            text = json.dumps(item.metadata, ensure_ascii=False, separators=(",", ":"))
            checksum = _detail_checksum(item.row, item.caption, item.picture, text)
            yield item.row, item.caption, item.picture, text, checksum


def _is_intact(row: int, caption: str | None, picture: str | None, metadata: str, checksum: int) -> bool:
    return _detail_checksum(row, caption, picture, metadata) == checksum


def _detail_checksum(row: int, caption: str | None, picture: str | None, metadata: str) -> int:
    return zlib.crc32(f"{row}\0{caption}\0{picture}\0{metadata}".encode())
