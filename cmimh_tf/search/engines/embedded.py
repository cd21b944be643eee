"""The embedded engine: a folder with an SQLite file, searched in memory. Nothing has to be started.

    INDEX/current.json           which generation is the current one
    INDEX/generation-1/items.db  all items; see `database`
    INDEX/generation-1/*.faiss   inverted files of large indexes, which can be made again at any time

Several processes may read while one writes. Readers look for changes at the start of every search and load only what is
new. A new generation, as after a change of the model, is built beside the old one and takes its place in one step.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.checksums import DamagedFile
from cmimh_tf.files import atomic_folder, locked_folder, read_json, remove_folder, write_json
from cmimh_tf.search.engines.database import Database, storage_errors
from cmimh_tf.search.engines.embedded_view import EmbeddedView, IndexState
from cmimh_tf.search.engines.interface import (
    FORMAT,
    Engine,
    Header,
    IndexBusy,
    IndexDamaged,
    IndexNotFound,
    View,
    Writer,
)
from cmimh_tf.search.engines.memory import IdTable, Memory, Snapshot, Strings
from cmimh_tf.search.engines.nearest import InvertedFile
from cmimh_tf.search.items import SIDES, ItemBatch, ItemError

# From so many codes on, an inverted file is worth its time to build.
LEAST_FOR_INVERTED_FILE = 4_000_000
SEARCHES = ("auto", "exact", "ivf")
_LEAST_TO_TRAIN = 1000
_CURRENT = "current.json"


def is_embedded_index(folder: Path) -> bool:
    """Whether there is an embedded index in a folder."""
    return (folder / _CURRENT).is_file()


def check_absent(folder: Path) -> None:
    """Raises FileExistsError if a folder cannot become a new index."""
    if folder.exists():
        raise FileExistsError(f"{folder} must not exist yet. Choose another folder, or remove this one first.")


def create_embedded(folder: Path, header: Header) -> None:
    """Makes an empty index; the folder appears complete.

    Raises:
        FileExistsError: if there is something at this path.
        StorageError: if it cannot be written.
    """
    check_absent(folder)
    with storage_errors(str(folder)), atomic_folder(folder) as temporary:
        (temporary / "generation-1").mkdir()
        Database.create(temporary / "generation-1" / "items.db", header).close()
        write_json(temporary / _CURRENT, {"format": FORMAT, "generation": 1}, checksum=True)


class EmbeddedEngine(Engine):
    """An index in a folder, opened.

    Args:
        folder: the index.
        search: "auto" searches exactly up to 4 million codes and through an inverted file beyond; "exact" and "ivf"
            choose one.
        num_probes: how many lists of an inverted file a query looks at; by default 16, or a 64th of many lists.

    Raises:
        IndexNotFound: if there is no index.
        IndexDamaged: if it has another format.
    """

    def __init__(self, folder: Path, search: str = "auto", num_probes: int | None = None):
        if search not in SEARCHES:
            raise ValueError(f"`search` must be one of {', '.join(SEARCHES)}. Received: {search!r}.")
        self.folder = Path(folder).absolute()
        self.address = str(folder)
        self._search = search
        self._num_probes = num_probes
        # Guards what all threads share: the state, the table of ids, inverted files.
        self._lock = threading.RLock()
        self._writing = threading.RLock()
        self._local = threading.local()
        self._opened: list[Database] = []
        self._state: IndexState | None = None
        # As text: every search looks at it.
        self._current_path = str(self.folder / _CURRENT)
        self._current = self._read_current()
        try:
            with self.view():
                pass
        except BaseException:
            self.close()
            raise

    def _read_current(self) -> tuple[tuple[int, int], int]:
        """What identifies the file current.json, and the generation in it."""
        path = self.folder / _CURRENT
        try:
            stat = path.stat()
            content = read_json(path)
        except FileNotFoundError as error:
            raise IndexNotFound(
                f"`index` must be the folder of an index. Received: {self.address}, where there is none. Make one "
                "with: python -m cmimh_tf.index build"
            ) from error
        except DamagedFile as error:
            raise IndexDamaged(str(error)) from error
        except OSError as error:
            raise IndexDamaged(f"{path} cannot be read ({error}). Build the index again, or restore a copy.") from error
        if content.get("format") != FORMAT:
            Header.from_json(content, self.address)
        return (stat.st_mtime_ns, stat.st_ino), content["generation"]

    def _generation(self) -> int:
        try:
            stat = os.stat(self._current_path)
            changed = (stat.st_mtime_ns, stat.st_ino) != self._current[0]
        except FileNotFoundError:
            changed = True
        if changed:
            self._current = self._read_current()
        return self._current[1]

    def _database(self, generation: int) -> Database:
        """This thread's connection; a forked process makes its own."""
        key = (os.getpid(), generation)
        if getattr(self._local, "key", None) != key:
            database = Database(self._file(generation))
            with self._lock:
                self._opened.append(database)
            self._local.database, self._local.key = database, key
        return self._local.database

    def _file(self, generation: int) -> Path:
        return self.folder / f"generation-{generation}" / "items.db"

    @contextmanager
    def view(self) -> Iterator[EmbeddedView]:
        with storage_errors(self.address):
            while True:
                generation = self._generation()
                try:
                    database = self._database(generation)
                except Exception:
                    # The generation may have been replaced between the two steps.
                    if self._generation() != generation:
                        continue
                    raise
                with database.reading():
                    state = self._state_of(database, generation)
                    if state is not None:
                        yield EmbeddedView(self, database, state)
                        return

    def _state_of(self, database: Database, generation: int) -> IndexState | None:
        """The state that a connection sees; None if memory has moved on, and the connection must look again."""
        change = database.setting("change")
        state = self._state
        if state is not None and (state.generation, state.snapshot.change) == (generation, change):
            return state
        with self._lock:
            state = self._state
            if state is not None and state.generation == generation:
                if state.snapshot.change == change:
                    return state
                if state.snapshot.change > change:
                    return None
                header = database.header()
                since = database.load_since(state.snapshot, header.code_length)
                if since is not None:
                    self._state = state.after(header, *since, database)
                    return self._state
            header = database.header()
            self._state = IndexState(generation, header, Memory(*database.load(header.code_length)))
            return self._state

    @contextmanager
    def writing(self) -> Iterator[EmbeddedWriter]:
        with self._writing, self._locked(), storage_errors(self.address):
            with self.view() as view:
                state = view.state
            database = Database(self._file(state.generation), writable=True)
            try:
                writer = EmbeddedWriter(database, state, self._ids(state))
                try:
                    with database.transaction():
                        yield writer
                        writer.finish()
                except BaseException:
                    state.id_table = None
                    raise
                database.move_log()
            finally:
                database.close()
            self._renew_inverted_files()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        def in_use(process: str) -> IndexBusy:
            return IndexBusy(
                f"{self.address} is being written by another process (process {process}). Try again when it is done."
            )

        if not is_embedded_index(self.folder):
            self._read_current()
        with locked_folder(self.folder, in_use):
            yield

    def _ids(self, state: IndexState) -> IdTable:
        with self._lock:
            if state.id_table is None:
                state.id_table = IdTable()
            state.id_table.catch_up(state.snapshot)
            return state.id_table

    def replace_codes(self, make: Callable[[View], tuple[Header, Iterator[ItemBatch]]]) -> None:
        with self._writing, self._locked(), storage_errors(self.address):
            with self.view() as view:
                header, batches = make(view)
                old = view.state.generation
                new = old + 1
                self._remove_others(old)
                folder = self.folder / f"generation-{new}"
                folder.mkdir()
                try:
                    database = Database.create(folder / "items.db", header)
                    try:
                        database.copy_with_codes(self._file(old), header, batches)
                    finally:
                        database.close()
                    write_json(self.folder / _CURRENT, {"format": FORMAT, "generation": new}, checksum=True)
                except BaseException:
                    remove_folder(folder)
                    raise
            self._remove_others(new)
            self._renew_inverted_files()

    def _remove_others(self, current: int) -> None:
        """Deletes generations that are not current: old ones, and what a killed process left."""
        for folder in self.folder.glob("generation-*"):
            if folder.name != f"generation-{current}":
                remove_folder(folder)
        for folder in self.folder.glob(".tmp-*"):
            remove_folder(folder)

    def inverted_file(self, side: str, state: IndexState) -> InvertedFile | None:
        """The inverted file that a search should use, if any."""
        count = len(state.snapshot.sides[side].codes)
        if self._search == "exact" or (self._search == "auto" and count < LEAST_FOR_INVERTED_FILE):
            return None
        with self._lock:
            if side not in state.inverted_files:
                found = self._saved_inverted_file(side, state)
                if found is None and self._search == "ivf" and count >= _LEAST_TO_TRAIN:
                    found = self._train(side, state)
                if found is not None and self._num_probes is not None:
                    found.index.nprobe = self._num_probes
                state.inverted_files[side] = found
            return state.inverted_files[side]

    def _saved_inverted_file(self, side: str, state: IndexState) -> InvertedFile | None:
        files = self._file(state.generation).parent.glob(f"{side}-*.faiss")
        last_rows = sorted(int(path.stem.rpartition("-")[2]) for path in files)
        if not last_rows:
            return None
        path = self._file(state.generation).parent / f"{side}-{last_rows[-1]}.faiss"
        try:
            return InvertedFile.load(path, last_rows[-1])
        except (DamagedFile, RuntimeError) as error:
            raise IndexDamaged(f"{path} is damaged. Delete the file; it is made again with the next change.") from error

    def _train(self, side: str, state: IndexState) -> InvertedFile:
        snapshot = state.snapshot
        owners = snapshot.sides[side].owners
        return InvertedFile.train(
            snapshot.sides[side].codes, snapshot.rows if owners is None else snapshot.rows[owners]
        )

    def _renew_inverted_files(self) -> None:
        """After a change: makes the inverted files that are missing or out of date, if the index is large."""
        if self._search == "exact" or self._state is None:
            return
        with self.view() as view:
            state = view.state
            for side in SIDES:
                codes = state.snapshot.sides[side].codes
                if len(codes) < (_LEAST_TO_TRAIN if self._search == "ivf" else LEAST_FOR_INVERTED_FILE):
                    continue
                found = self.inverted_file(side, state)
                folder = self._file(state.generation).parent
                is_saved = found is not None and (folder / f"{side}-{found.last_row}.faiss").exists()
                if is_saved and found is not None and not state.is_outdated(side, found):
                    continue
                new = self._train(side, state)
                # The items are stored already. Without room for the file, it is made again with the next change.
                with suppress(OSError, RuntimeError):
                    new.save(folder / f"{side}-{new.last_row}.faiss")
                    for path in folder.glob(f"{side}-*.faiss"):
                        if path.name != f"{side}-{new.last_row}.faiss":
                            path.unlink(missing_ok=True)
                with self._lock:
                    state.inverted_files[side] = new

    def verify(self) -> list[str]:
        with self.view() as view:
            problems = view.database.verify()
            if problems:
                return problems
            # What a process that started now would load.
            fresh = Memory(*view.database.load(view.header.code_length)).snapshot
            for side in SIDES:
                if not np.array_equal(fresh.sides[side].codes, view.state.snapshot.sides[side].codes):
                    problems.append(f"The {side} codes in memory differ from those on disk.")
            return problems

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def describe(self) -> dict[str, Any]:
        with self.view() as view:
            uses = {side: self.inverted_file(side, view.state) for side in SIDES}
        lists = {f"{side} lists": found.index.nlist for side, found in uses.items() if found is not None}
        return {"engine": "embedded", "search": "inverted file" if lists else "exact", **lists}

    def close(self) -> None:
        with self._lock:
            for database in self._opened:
                database.close()
            self._opened.clear()
            self._local = threading.local()


class EmbeddedWriter(Writer):
    """Changes of one transaction."""

    def __init__(self, database: Database, state: IndexState, ids: IdTable):
        self.database = database
        self.snapshot: Snapshot = state.snapshot
        self.ids = ids
        self.change = database.setting("change") + 1
        self.first_row = self.next_row = database.setting("next_row")
        self.removed = np.empty(0, np.int64)

    def add(self, batch: ItemBatch) -> int:
        if not len(batch):
            return 0
        existing = self.ids.find(batch.ids, self._is_alive)
        known = existing >= 0
        again = known & (existing >= self.first_row)
        if again.any():
            raise ItemError(f"`ids` must not repeat. Received: {batch.ids[int(np.argmax(again))]!r} twice.")
        if known.any():
            self.remove(existing[known])
        self.database.append(batch, self.next_row)
        rows = np.arange(self.next_row, self.next_row + len(batch))
        self.ids.add(Strings.from_joined("\0".join(batch.ids).encode()), rows)
        self.next_row += len(batch)
        return int(known.sum())

    def remove(self, rows: np.ndarray) -> None:
        rows = np.unique(np.asarray(rows, np.int64))
        if len(rows):
            self.database.remove(rows, self.change)
            self.removed = np.union1d(self.removed, rows)

    def set_header(self, header: Header) -> None:
        self.database.set_header(header)

    def finish(self) -> None:
        """Before the commit."""
        self.database.set_setting("change", self.change)
        self.database.compact(self.change)

    def _is_alive(self, rows: np.ndarray) -> np.ndarray:
        stored = (self.snapshot.positions(rows) >= 0) | (rows >= self.first_row)
        return stored & ~np.isin(rows, self.removed)
