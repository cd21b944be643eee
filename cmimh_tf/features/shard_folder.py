"""The folder of featurised pairs: shards, and a description by which other data or features never mix with them."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.atomic import write_json
from cmimh_tf.data.readers.tfrecords import DESCRIPTION_FILE
from cmimh_tf.features.shard_plan import Portion
from cmimh_tf.features.shard_writer import TEMPORARY_PREFIX
from cmimh_tf.features.worker_notes import WorkerNotes

_IDENTITY = "made_from"


@dataclass(frozen=True)
class ShardFolder:
    """Shards and pairs.json.

    Args:
        path: of the folder.
    """

    path: Path

    @contextmanager
    def claimed(self, identity: dict[str, Any], *, overwrite: bool) -> Iterator[None]:
        """Holds the folder for the work that `identity` describes, with the shards of it that are there.

        Args:
            identity: all that decides the shards, JSON-ready.
            overwrite: whether shards of other work may be removed.

        Raises:
            ValueError: if the folder holds something else, or another process is at work in it.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"`out` must be a folder, or end in .npz. Received: {self.path}, a file.")
        self.path.mkdir(parents=True, exist_ok=True)
        # A lock ends with its process, however that ends.
        lock = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ValueError(f"`out` must not be in use. Received: {self.path}, by another command.") from error
            self._check(identity, overwrite)
            for path in self.path.glob(f"{TEMPORARY_PREFIX}*"):
                path.unlink(missing_ok=True)
            WorkerNotes(self.path).clear()
            if not self._description.exists():
                write_json(self._description, {_IDENTITY: identity})
            yield
            WorkerNotes(self.path).clear()
        finally:
            os.close(lock)

    def unfinished(self, portions: Sequence[Portion]) -> list[Portion]:
        """Those with a shard that is not there."""
        return [portion for portion in portions if not all(map(self.has, portion.shards))]

    def has(self, shard: Any) -> bool:
        """Whether a shard is there, and so complete."""
        return (self.path / shard.name).exists()

    def complete(self, identity: dict[str, Any], facts: dict[str, Any]) -> None:
        """Adds what is known when all shards are there."""
        write_json(self._description, {**facts, _IDENTITY: identity})

    @property
    def _description(self) -> Path:
        return self.path / DESCRIPTION_FILE

    def _check(self, identity: dict[str, Any], overwrite: bool) -> None:
        others = sorted(path.name for path in self.path.iterdir() if not path.name.startswith("."))
        if not others:
            return
        if DESCRIPTION_FILE not in others:
            raise ValueError(
                f"`out` must be a new folder, or one of this command. Received: {self.path}, with {others[0]}."
            )
        made_from = json.loads(self._description.read_text(encoding="utf-8")).get(_IDENTITY, {})
        # As JSON has it: tuples are lists there.
        wanted = json.loads(json.dumps(identity))
        if made_from == wanted:
            return
        if not overwrite:
            key = next(key for key in (*wanted, *made_from) if wanted.get(key) != made_from.get(key))
            raise ValueError(
                f"`out` must be a new folder, or hold shards of the same work. Received: {self.path}, with `{key}` "
                f"{made_from.get(key)!r} instead of {wanted.get(key)!r}. --overwrite removes these shards."
            )
        # The description last: whoever is killed here has left a folder that can still be told from a foreign one.
        for path in self.path.glob("pairs-*-of-*.tfrecord"):
            path.unlink()
        self._description.unlink()
