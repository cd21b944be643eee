"""Which pairs of a source go to which shard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cmimh_tf.data.readers.official_splits import split_marks
from cmimh_tf.data.records import PairReader, PairRecord, RecordIndex


@dataclass(frozen=True)
class Shard:
    """One file of the output.

    Attributes:
        name: of the file.
        num_pairs: how many it holds.
    """

    name: str
    num_pairs: int


@dataclass(frozen=True, eq=False)
class Portion:
    """Consecutive blocks of a source, which one worker reads from first to last, and the shards that they become.

    Attributes:
        blocks: (first row, row after the last) of each.
        is_used: bool of all rows of the blocks.
        marks: train, database or query of the used rows, or None where nothing is official.
        shards: in the order of the rows.
    """

    blocks: tuple[tuple[int, int], ...]
    is_used: np.ndarray
    marks: np.ndarray | None
    shards: tuple[Shard, ...]

    def read(self, reader: PairReader) -> Iterator[tuple[PairRecord, str | None]]:
        """The used records, each with its mark."""
        row = used = 0
        for start, stop in self.blocks:
            for record in reader.read(start, stop):
                if self.is_used[row]:
                    yield record, None if self.marks is None else str(self.marks[used])
                    used += 1
                row += 1


def plan_shards(index: RecordIndex, pairs_per_shard: int) -> list[Portion]:
    """Divides the used rows of a source: small blocks are read together, large ones become several shards.

    Args:
        index: of the source.
        pairs_per_shard: about so many go to a shard.

    Raises:
        ValueError: if `pairs_per_shard` is not positive.
    """
    if pairs_per_shard < 1:
        raise ValueError(f"`pairs_per_shard` must be at least 1. Received: pairs_per_shard={pairs_per_shard}.")
    is_used, marks = index.is_used(), split_marks(index)
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
        names = [f"pairs-{number + shard:05d}-of-{total:05d}.tfrecord" for shard in range(num_shards)]
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
