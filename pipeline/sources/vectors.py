"""Pairs that are vectors already: an .npz file, and the synthetic set."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.files import load_npz
from cmimh_tf.data.paired import PairedData
from cmimh_tf.data.synthetic import make_synthetic
from pipeline.sources.base import DataError, PairSource, SourceIndex, even_blocks, files_fingerprint

_SYNTHETIC_PAIRS = 2000
_SYNTHETIC_SEED = 0


class VectorSource(PairSource):
    """Pairs that fit in memory as `PairedData`."""

    def data(self) -> PairedData:
        """The pairs, loaded once a process."""
        raise NotImplementedError

    def index(self) -> SourceIndex:
        data = self.data()
        ids = [str(row) for row in range(len(data))] if data.ids is None else data.ids.tolist()
        return SourceIndex(ids, even_blocks(len(data)), data.is_query)

    def read(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        data = self.data()
        for row in range(start, stop):
            features: dict[str, Any] = {"image": data.image[row], "text": data.text[row]}
            if data.labels is not None:
                features["labels"] = data.labels[row].astype(np.int64)
            # Shown in the report; the vectors are what is hashed.
            if data.captions is not None:
                features["caption"] = str(data.captions[row])
            yield features


@dataclass(frozen=True)
class NpzSource(VectorSource):
    """An .npz file: `image` [N, Di], `text` [N, Dt], optional labels, ids, captions, is_query."""

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
class SyntheticSource(VectorSource):
    """Pairs made from known factors."""

    @property
    def name(self) -> str:
        return "synthetic"

    def fingerprint(self) -> str:
        return f"synthetic-{_SYNTHETIC_PAIRS}-{_SYNTHETIC_SEED}"

    def data(self) -> PairedData:
        return _synthetic()


@functools.lru_cache(maxsize=1)
def _load_npz(path: Path, modified_at: int) -> PairedData:
    return load_npz(path)


@functools.lru_cache(maxsize=1)
def _synthetic() -> PairedData:
    return make_synthetic(_SYNTHETIC_PAIRS, seed=_SYNTHETIC_SEED)
