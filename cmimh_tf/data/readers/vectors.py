"""Pairs that are vectors already: an .npz file, and the synthetic set."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cmimh_tf.data.files import load_npz
from cmimh_tf.data.paired import PairedData
from cmimh_tf.data.records import DataError, PairReader, PairRecord, RecordIndex, even_blocks, files_fingerprint
from cmimh_tf.data.splits import Splits
from cmimh_tf.data.synthetic import make_synthetic

_SYNTHETIC_PAIRS = 2000
_SYNTHETIC_SEED = 0


class VectorReader(PairReader):
    """Pairs that fit in memory as `PairedData`."""

    def data(self) -> PairedData:
        """The pairs, loaded once a process."""
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
                # Shown in reports; the vectors are what is hashed.
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


def _ids(data: PairedData) -> list[str]:
    return [str(row) for row in range(len(data))] if data.ids is None else data.ids.tolist()


@functools.lru_cache(maxsize=1)
def _load_npz(path: Path, modified_at: int) -> PairedData:
    return load_npz(path)


@functools.lru_cache(maxsize=1)
def _synthetic() -> PairedData:
    return make_synthetic(_SYNTHETIC_PAIRS, seed=_SYNTHETIC_SEED)
