"""Pairs of images and texts as vectors: the container, files, splits, and two sets that need no download."""

from cmimh_tf.data.emoji import NUM_EMOJI, EmojiPairs, load_emoji, load_emoji_raw
from cmimh_tf.data.files import load_npz, save_npz
from cmimh_tf.data.paired import PairedData
from cmimh_tf.data.splits import Splits, make_splits
from cmimh_tf.data.synthetic import SyntheticPairs, make_synthetic, make_synthetic_factors

__all__ = [
    "NUM_EMOJI",
    "EmojiPairs",
    "PairedData",
    "Splits",
    "SyntheticPairs",
    "load_emoji",
    "load_emoji_raw",
    "load_npz",
    "make_splits",
    "make_synthetic",
    "make_synthetic_factors",
    "save_npz",
]
