"""Pairs of images and texts: readers for many kinds of files, splits, and two data sets that need no download.

This package imports TensorFlow only where pictures are decoded or TFRecords and TFDS data sets are read.
"""

from cmimh_tf.data.emoji import NUM_EMOJI, EmojiPairs, load_emoji, load_emoji_raw
from cmimh_tf.data.npz import load_npz, save_npz
from cmimh_tf.data.pairs import DataError, PairedData
from cmimh_tf.data.records import PairReader, PairRecord, load_vectors
from cmimh_tf.data.sources import open_records
from cmimh_tf.data.splits import Splits, make_splits
from cmimh_tf.data.synthetic import SyntheticPairs, make_synthetic, make_synthetic_factors

__all__ = [
    "NUM_EMOJI",
    "DataError",
    "EmojiPairs",
    "PairReader",
    "PairRecord",
    "PairedData",
    "Splits",
    "SyntheticPairs",
    "load_emoji",
    "load_emoji_raw",
    "load_npz",
    "load_vectors",
    "make_splits",
    "make_synthetic",
    "make_synthetic_factors",
    "open_records",
    "save_npz",
]
