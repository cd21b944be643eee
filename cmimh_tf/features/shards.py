"""The output of `python -m cmimh_tf.features`: which pairs go to which shard, and the folder that holds the shards."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cmimh_tf.checksums import CHECKSUM_FILE, DamagedFile, verify
from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.readers.tfrecord import DESCRIPTION_FILE
from cmimh_tf.data.records import RecordIndex
from cmimh_tf.files import TEMPORARY_PREFIX, locked_folder, read_json, write_json

_IDENTITY = "made_from"
_NAME = "pairs-{:05d}-of-{:05d}.tfrecord"

Record = TypeVar("Record")


@dataclass(frozen=True)
class Shard:
    """One output file.

    Attributes:
        name: name of the file.
        num_pairs: number of pairs in it.
    """

    name: str
    num_pairs: int


@dataclass(frozen=True, eq=False)
class Portion:
    """Consecutive blocks of a source, which one worker reads in order, and the shards made from them.

    Attributes:
        blocks: (first row, row after the last) of each block.
        is_used: bool for each row of the blocks.
        marks: "train", "database" or "query" for each used row, or None without official splits.
        shards: the shards in the order of the rows.
    """

    blocks: tuple[tuple[int, int], ...]
    is_used: np.ndarray
    marks: np.ndarray | None
    shards: tuple[Shard, ...]

    def read(self, read_block: Callable[[int, int], Iterator[Record]]) -> Iterator[tuple[Record, str | None]]:
        """Yields the used records, each with its mark.

        Args:
            read_block: yields the records of a block, such as `PairReader.read`.
        """
        row = used = 0
        for start, stop in self.blocks:
            for record in read_block(start, stop):
                if self.is_used[row]:
                    yield record, None if self.marks is None else str(self.marks[used])
                    used += 1
                row += 1

    def missing_shards(
        self, folder: Path, read_block: Callable[[int, int], Iterator[Record]]
    ) -> Iterator[tuple[Shard, Iterator[tuple[Record, str | None]]]]:
        """Yields each shard that is not in `folder` yet, with its records, which must be read before the next shard.

        Raises:
            DataError: if a shard got fewer records than planned.
        """
        records = self.read(read_block)
        for shard in self.shards:
            pairs = itertools.islice(records, shard.num_pairs)
            if (folder / shard.name).exists():
                # The rows of a block can only be reached by reading the rows before them.
                for _ in pairs:
                    pass
            else:
                yield shard, _complete(pairs, shard)


def _complete(pairs: Iterator[Any], shard: Shard) -> Iterator[Any]:
    count = 0
    for pair in pairs:
        count += 1
        yield pair
    if count != shard.num_pairs:
        raise DataError(
            f"{shard.name}: the data must not change while they are read. Received: {count} pairs instead of "
            f"{shard.num_pairs}."
        )


def plan_shards(index: RecordIndex, pairs_per_shard: int, name: str = _NAME) -> list[Portion]:
    """Distributes the used rows of a source. Small blocks are read together; a large block becomes several shards.

    Args:
        index: the index of the source.
        pairs_per_shard: approximate number of pairs per shard.
        name: the names of the files, with places for the number of the shard and the number of all shards.

    Raises:
        ValueError: if `pairs_per_shard` is not positive.
    """
    if pairs_per_shard < 1:
        raise ValueError(f"`pairs_per_shard` must be at least 1. Received: pairs_per_shard={pairs_per_shard}.")
    is_used, marks = index.is_used(), index.split_marks()
    groups: list[list[tuple[int, int]]] = []
    counts: list[int] = []
    for start, stop in index.blocks:
        count = int(is_used[start:stop].sum())
        if not count:
            continue
        if not counts or counts[-1] >= pairs_per_shard:
            groups.append([])
            counts.append(0)
        groups[-1].append((start, stop))
        counts[-1] += count
    shards_of = [max(1, round(count / pairs_per_shard)) for count in counts]
    total = sum(shards_of)
    portions, number = [], 0
    for blocks, count, num_shards in zip(groups, counts, shards_of, strict=True):
        rows = np.concatenate([np.arange(*block) for block in blocks])
        sizes = [len(part) for part in np.array_split(np.arange(count), num_shards)]
        names = [name.format(number + shard, total) for shard in range(num_shards)]
        portions.append(
            Portion(
                tuple(blocks),
                is_used[rows],
                None if marks is None else marks[rows][is_used[rows]],
                tuple(map(Shard, names, sizes)),
            )
        )
        number += num_shards
    return portions


@dataclass(frozen=True)
class ShardFolder:
    """The shards and pairs.json, which records the data and features that the shards were made from.

    Args:
        path: the folder.
        description_file: the name of the file that is called pairs.json above.
        shard_pattern: matches the names of the shards.
    """

    path: Path
    description_file: str = DESCRIPTION_FILE
    shard_pattern: str = "pairs-*-of-*.tfrecord"

    @contextmanager
    def claimed(self, identity: dict[str, Any], *, overwrite: bool) -> Iterator[None]:
        """Locks the folder for a run. Shards of an earlier run with the same identity are kept.

        Args:
            identity: everything that determines the shards, as values for JSON.
            overwrite: whether to remove shards of another identity.

        Raises:
            ValueError: if the folder holds something else, or another process uses it.
            DamagedFile: if its description is not what was written.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"`out` must be a folder, or end in .npz. Received: {self.path}, a file.")
        # Before the lock, which would leave a file in the wrong folder.
        self._check_owned()
        with locked_folder(self.path, self._in_use):
            self._check_identity(identity, overwrite)
            self.remove_temporary()
            if not self._description.exists():
                write_json(self._description, {_IDENTITY: identity}, checksum=True)
            self._remove_damaged()
            yield

    def remove_temporary(self) -> None:
        """Removes what killed processes left."""
        for path in self.path.glob(f"{TEMPORARY_PREFIX}*"):
            path.unlink(missing_ok=True)

    def _remove_damaged(self) -> None:
        """Removes shards that are not what was written; they are made again."""
        for path in sorted(self.path.glob(self.shard_pattern)):
            try:
                verify(path)
            except DamagedFile:
                print(f"{path} is damaged, and is made again")
                path.unlink()

    def unfinished(self, portions: Sequence[Portion]) -> list[Portion]:
        """The portions with at least one missing shard."""
        return [portion for portion in portions if not all(map(self.has, portion.shards))]

    def has(self, shard: Shard) -> bool:
        """Whether a shard exists. A shard that exists is complete."""
        return (self.path / shard.name).exists()

    def complete(self, identity: dict[str, Any], facts: dict[str, Any]) -> None:
        """Writes the final pairs.json, once all shards exist."""
        write_json(self._description, {**facts, _IDENTITY: identity}, checksum=True)

    @property
    def _description(self) -> Path:
        return self.path / self.description_file

    def _in_use(self, process: str) -> ValueError:
        return ValueError(f"`out` must not be in use. Received: {self.path}, which process {process} is writing to.")

    def _check_owned(self) -> None:
        """Rejects a folder that this command did not make."""
        names = sorted(path.name for path in self.path.glob("*") if not path.name.startswith("."))
        if names and self.description_file not in names:
            raise ValueError(
                f"`out` must be a new folder, or one made by this command. Received: {self.path}, with {names[0]}."
            )

    def _check_identity(self, identity: dict[str, Any], overwrite: bool) -> None:
        if not self._description.exists():
            return
        try:
            made_from = read_json(self._description).get(_IDENTITY, {})
        except DamagedFile:
            if not overwrite:
                raise
            made_from = {}
        # Through JSON, which turns tuples into lists.
        wanted = json.loads(json.dumps(identity))
        if made_from == wanted:
            return
        if not overwrite:
            key = next(key for key in (*wanted, *made_from) if wanted.get(key) != made_from.get(key))
            raise ValueError(
                "`out` must be a new folder, or hold shards made from the same data and features. Received: "
                f"{self.path}, with `{key}` {made_from.get(key)!r} instead of {wanted.get(key)!r}. Use --overwrite to "
                "remove these shards."
            )
        # The description last: if the process is killed here, the folder is still recognised as made by this command.
        for path in self.path.glob(self.shard_pattern):
            path.unlink()
        (self.path / CHECKSUM_FILE).unlink(missing_ok=True)
        self._description.unlink()
