"""The index in use: opens the newest version, replaces it while requests run, and closes the old one afterwards."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from serving.errors import ServingError
from serving.search.bodies import NewItem, SearchRequest

logger = logging.getLogger(__name__)

_DRAIN_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Item:
    """What the index holds about an item. `picture` is the stored path; `codes` are by side."""

    id: str
    caption: str | None
    picture: str | None
    metadata: dict[str, Any]
    codes: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Hit:
    """One result; `side` is the code that was found, "image" or "text", and `code` that code."""

    item: Item
    side: str
    distance: int
    score: float
    code: bytes


@dataclass(frozen=True)
class Found:
    """The code of one query, and its results, best first."""

    code: bytes
    hits: list[Hit]


class OpenIndex(Protocol):
    """One version of an index together with the model that hashes queries. Methods may run in any thread.

    Errors that a client can cure are raised as `ServingError`.
    """

    def facts(self) -> dict[str, Any]:
        """Name, version, number of items, bits and fingerprint of the model."""

    def columns(self) -> list[dict[str, Any]]:
        """The metadata columns, with common values or ranges."""

    def rerankings(self) -> list[str]:
        """The values of `rerank` that the index supports."""

    def search(self, request: SearchRequest) -> tuple[dict[str, Any], list[Found]]:
        """The facts about the index and the results of every query, all of one state of the index."""

    def items(self, ids: Sequence[str]) -> list[Item | None]:
        """Items by id; None for ids that are not in the index."""

    def sample(self, count: int) -> list[Item]:
        """Up to `count` items, spread over the index."""

    def add(self, items: Sequence[NewItem]) -> int:
        """Adds items, all or none; returns how many replaced an item with the same id."""

    def remove(self, id: str) -> bool:
        """Removes an item; returns whether it was there."""

    def close(self) -> None:
        """Frees memory, files and connections. No other method may be running."""


Identity = tuple[Any, ...]


class IndexVersions:
    """The newest version of an index. `poll` runs in its own thread; the other methods may run in any thread.

    A folder is replaced by another one when its path leads elsewhere: after a rename, or after a change of a symbolic
    link. A folder of numbered versions is replaced by its greatest number.

    Args:
        address: a folder, or the address of a database, which is never replaced.
        open_index: opens a version, given its address and its number (None if it has none).
        poll_seconds: time between two polls.
        drain_seconds: maximum time for running requests to finish before an old version is closed.
    """

    def __init__(
        self,
        address: str,
        open_index: Callable[[str, int | None], OpenIndex],
        poll_seconds: float = 1.0,
        drain_seconds: float = 35.0,
    ):
        self._address, self._open_index = address, open_index
        self._poll_seconds, self._drain_seconds = poll_seconds, drain_seconds
        self._lock = threading.Lock()
        self._current: _Version | None = None
        self._rejected: Identity | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Opens the newest version, then polls in the background until `stop`.

        Raises:
            Exception: whatever opening the first version raises.
        """
        self._replace(*self._newest())
        self._thread = threading.Thread(target=self._poll_until_stopped, name="index-versions", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends polling and closes the index. No request may be running."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            version, self._current = self._current, None
        if version is not None:
            version.index.close()

    @contextmanager
    def acquire(self) -> Iterator[OpenIndex]:
        """The current version, which stays open inside the block.

        Raises:
            ServingError: UNAVAILABLE if there is none.
        """
        with self._lock:
            version = self._current
            if version is None:
                raise ServingError("UNAVAILABLE", "The index is not open.")
            version.uses += 1
        try:
            yield version.index
        finally:
            with self._lock:
                version.uses -= 1

    def is_ready(self) -> bool:
        """Whether an index is open."""
        return self._current is not None

    def poll(self) -> None:
        """Replaces the index if there is a newer version. One that cannot be opened is tried again when it changes."""
        try:
            address, number, identity = self._newest()
        except (OSError, ValueError):
            return
        if (self._current is not None and identity == self._current.identity) or identity == self._rejected:
            return
        try:
            self._replace(address, number, identity)
        except Exception as error:
            self._rejected = identity
            logger.error("the new version cannot be opened", extra={"index": address, "error": str(error)})

    def _poll_until_stopped(self) -> None:
        while not self._stop.wait(self._poll_seconds):
            try:
                self.poll()
            except Exception:
                logger.exception("looking for a new version failed; the open one stays in use")

    def _newest(self) -> tuple[str, int | None, Identity]:
        """Address, number and identity of the newest version; two versions never have the same identity."""
        if "://" in self._address:
            return self._address, None, (self._address,)
        base = Path(self._address)
        numbered = {
            int(entry.name): entry
            for entry in base.iterdir()
            if entry.name.isascii() and entry.name.isdecimal() and entry.is_dir()
        }
        number = max(numbered, default=None)
        folder = base if number is None else numbered[number]
        status = folder.stat()
        changed = max((entry.stat().st_mtime_ns for entry in folder.glob("*.json")), default=0)
        return str(folder), number, (str(folder), status.st_dev, status.st_ino, changed)

    def _replace(self, address: str, number: int | None, identity: Identity) -> None:
        started = time.perf_counter()
        index = self._open_index(address, number)
        with self._lock:
            old, self._current = self._current, _Version(index, identity)
        seconds = round(time.perf_counter() - started, 3)
        logger.info("the index is open", extra={"index": address, "version": number, "seconds": seconds})
        if old is not None:
            # Requests have a time limit, so this ends.
            deadline = time.monotonic() + self._drain_seconds
            while old.uses and time.monotonic() < deadline:
                time.sleep(_DRAIN_POLL_SECONDS)
            if old.uses:
                logger.error("requests on the old version did not finish; it stays open", extra={"index": address})
            else:
                old.index.close()


@dataclass
class _Version:
    index: OpenIndex
    identity: Identity
    uses: int = 0
