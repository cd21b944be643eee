"""Data that fit in memory: vectors in an .npz file, and the embedded data sets `synthetic` and `emoji`."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cmimh_tf.data.emoji import PACKAGES, EmojiPairs, load_emoji_raw
from cmimh_tf.data.npz import load_npz
from cmimh_tf.data.pairs import DataError, PairedData
from cmimh_tf.data.records import PairReader, PairRecord, RecordIndex, even_blocks
from cmimh_tf.data.splits import Splits
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.files import files_fingerprint

_SYNTHETIC_PAIRS = 2000
_SYNTHETIC_SEED = 0


class VectorReader(PairReader):
    """Reads the pairs of `PairedData`."""

    def data(self) -> PairedData:
        """The pairs, loaded once per process."""
        raise NotImplementedError

    def survey(self) -> RecordIndex:
        data = self.data()
        classes = None if data.classes is None else data.classes.tolist()
        blocks = even_blocks(len(data))
        if data.is_train is None or data.is_query is None:
            return RecordIndex(_ids(data), blocks, data.is_query, classes=classes)
        masks = (data.is_train, ~data.is_query, data.is_query)
        return RecordIndex(_ids(data), blocks, splits=Splits(*map(np.flatnonzero, masks)), classes=classes)

    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        data = self.data()
        ids = _ids(data)
        for row in range(start, stop):
            yield PairRecord(
                ids[row],
                f"{self.name}, row {row}",
                image=data.image[row],
                text=data.text[row],
                # Displayed in reports; the vectors are hashed.
                caption=None if data.captions is None else str(data.captions[row]),
                labels=None if data.labels is None else data.labels[row],
            )


@dataclass(frozen=True)
class NpzReader(VectorReader):
    """An .npz file: `image` [N, Di], `text` [N, Dt], optional labels, ids, captions, is_query, is_train."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    def fingerprint(self) -> str:
        return files_fingerprint([self.path])

    def data(self) -> PairedData:
        try:
            return _load_npz(self.path, self.path.stat().st_mtime_ns)
        except ValueError as error:
            raise DataError(str(error)) from error


@dataclass(frozen=True)
class SyntheticReader(VectorReader):
    """Pairs made from known factors."""

    @property
    def name(self) -> str:
        return "synthetic"

    def fingerprint(self) -> str:
        return f"synthetic-{_SYNTHETIC_PAIRS}-{_SYNTHETIC_SEED}"

    def data(self) -> PairedData:
        return _synthetic()


@dataclass(frozen=True)
class EmojiReader(PairReader):
    """1,903 drawings as PNG, with their names."""

    @property
    def name(self) -> str:
        return "emoji"

    def fingerprint(self) -> str:
        return "emoji-" + "-".join(importlib.metadata.version(package) for package in PACKAGES)

    def survey(self) -> RecordIndex:
        return RecordIndex(_emoji().ids, even_blocks(len(_emoji().ids)), classes=_emoji().classes)

    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        import tensorflow as tf

        pairs = _emoji()
        for row in range(start, stop):
            yield PairRecord(
                pairs.ids[row],
                f"emoji, row {row}",
                image_bytes=tf.io.encode_png(pairs.pictures[row]).numpy(),
                caption=pairs.texts[row],
                labels=pairs.labels[row],
            )


def _ids(data: PairedData) -> list[str]:
    return [str(row) for row in range(len(data))] if data.ids is None else data.ids.tolist()


@functools.lru_cache(maxsize=1)
def _load_npz(path: Path, modified_at: int) -> PairedData:
    return load_npz(path)


@functools.lru_cache(maxsize=1)
def _synthetic() -> PairedData:
    return make_synthetic(_SYNTHETIC_PAIRS, seed=_SYNTHETIC_SEED)


@functools.lru_cache(maxsize=1)
def _emoji() -> EmojiPairs:
    return load_emoji_raw()
