"""Which pairs go to which shard: small blocks together, large ones apart, unused rows nowhere."""

import numpy as np
import pytest

from cmimh_tf.data.records import PairRecord, RecordIndex
from cmimh_tf.data.splits import Splits
from cmimh_tf.features.shards import plan_shards


def index(blocks, **more):
    return RecordIndex([str(row) for row in range(blocks[-1][1])], blocks, **more)


@pytest.mark.parametrize(
    ("blocks", "portions", "sizes"),
    [
        # Small blocks are read together until there is a shard's worth.
        ([(0, 4), (4, 8), (8, 12), (12, 14)], [2, 2], [[8], [6]]),
        # A large block is read by one worker, and becomes several shards of nearly one size.
        ([(0, 25), (25, 30)], [1, 1], [[9, 8, 8], [5]]),
        # An empty file is a block without rows.
        ([(0, 0), (0, 8)], [1], [[8]]),
    ],
)
def test_blocks_become_shards_of_about_one_size(blocks, portions, sizes):
    plan = plan_shards(index(blocks), 8)
    assert [len(portion.blocks) for portion in plan] == portions
    assert [[shard.num_pairs for shard in portion.shards] for portion in plan] == sizes
    names = [shard.name for portion in plan for shard in portion.shards]
    assert names == [f"pairs-{number:05d}-of-{len(names):05d}.tfrecord" for number in range(len(names))]


def test_rows_of_no_split_are_left_out_and_others_marked():
    def read_block(start, stop):
        return (PairRecord(str(row), "") for row in range(start, stop))

    # Row 0 is a copy for training, as in TFDS data.
    splits = Splits(train=np.array([2]), database=np.array([2, 3]), query=np.array([5, 4]))
    [portion] = plan_shards(index([(0, 1), (1, 4), (4, 6)], splits=splits), 8)
    assert portion.shards[0].num_pairs == 4
    read = [(record.id, mark) for record, mark in portion.read(read_block)]
    assert read == [("2", "train"), ("3", "database"), ("4", "query"), ("5", "query")]
