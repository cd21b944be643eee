"""TFRecords of tf.Examples, with or without splits of their own.

Files whose names begin with train, database and query, or that are in folders called so (or Split-train), are official
splits; others are one set, split by the seed. Keys: `image` or `image_bytes`, `text` or `caption`, optional `labels`
and `id`.
"""

from __future__ import annotations

import functools
import glob
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.splits import Splits
from pipeline.sources.base import DataError, PairSource, SourceIndex, check_unique_ids, files_fingerprint
from pipeline.sources.pictures_and_captions import check_picture

SPLIT_NAMES = ("train", "database", "query")
# "train-00000-of-00010", but not "training_notes"; folders only if they are called exactly so.
_SPLIT_FILE = re.compile(rf"({'|'.join(SPLIT_NAMES)})(?![a-z])", re.IGNORECASE)
_SPLIT_FOLDER = re.compile(rf"(?:split-)?({'|'.join(SPLIT_NAMES)})", re.IGNORECASE)
_INPUTS = {"image": "image_bytes", "text": "caption"}


@dataclass(frozen=True)
class TFRecordSource(PairSource):
    """tf.Examples in TFRecord files, plain or gzip."""

    spec: str
    paths: tuple[Path, ...]

    @property
    def name(self) -> str:
        path = Path(self.spec)
        return path.stem.replace("*", "").strip("-_.") or path.parent.name

    def fingerprint(self) -> str:
        return files_fingerprint(self.paths)

    def index(self) -> SourceIndex:
        ids: list[str] = []
        places: list[str] = []
        blocks: list[tuple[int, int]] = []
        rows_of: dict[str, list[int]] = {}
        for path in self.paths:
            start = len(ids)
            for record, example in enumerate(_examples(path)):
                given = example.features.feature["id"].bytes_list.value if "id" in example.features.feature else []
                ids.append(given[0].decode() if given else str(len(ids)))
                places.append(f"{path}, record {record}")
            blocks.append((start, len(ids)))
            rows_of.setdefault(_split_of(path) or "", []).extend(range(start, len(ids)))
        if not ids:
            raise DataError(f"{self.spec}: must hold at least one tf.Example. Received: {len(self.paths)} empty files.")
        if "" in rows_of:
            check_unique_ids(ids, places)
            return SourceIndex(ids, blocks)
        return SourceIndex(ids, blocks, splits=_official_splits(self.spec, ids, places, rows_of))

    def read(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        path = self.paths[[block[0] for block in _starts(self)].index(start)] if stop > start else None
        if path is None:
            return
        expected = _shape_of(next(_examples(self.paths[0])))
        for record, example in enumerate(_examples(path)):
            yield _features(example, expected, f"{path}, record {record}")


def find_files(spec: str) -> list[Path]:
    """The files of a path, a folder or a pattern, in alphabetical order.

    Raises:
        FileNotFoundError: if there are none.
    """
    path = Path(spec)
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".")]
    else:
        found = [Path(name) for name in glob.glob(spec)]
    if not found:
        raise FileNotFoundError(
            f"`data` must be an .npz, a .csv, or TFRecords (a file, a folder or a pattern). Received: {spec}, "
            "where there is nothing."
        )
    return sorted(file.absolute() for file in found)


@functools.lru_cache(maxsize=4)
def _starts(source: TFRecordSource) -> list[tuple[int, int]]:
    return source.index().blocks


def _examples(path: Path) -> Iterator[Any]:
    import tensorflow as tf

    with path.open("rb") as file:
        compression = "GZIP" if file.read(2) == b"\x1f\x8b" else ""
    record = 0
    try:
        for serialized in tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator():
            yield tf.train.Example.FromString(serialized)
            record += 1
    except Exception as error:
        raise DataError(f"{path}, record {record}: must be a TFRecord of tf.Examples. Received: {error}.") from error


def _split_of(path: Path) -> str | None:
    match = _SPLIT_FILE.match(path.name) or _SPLIT_FOLDER.fullmatch(path.parent.name)
    return match[1].lower() if match else None


def _official_splits(spec: str, ids: list[str], places: list[str], rows_of: dict[str, list[int]]) -> Splits:
    for split in SPLIT_NAMES[1:]:
        if not rows_of.get(split):
            raise DataError(f"{spec}: the split {split} must not be empty. Received: no record in it.")
    row_of_id = {ids[row]: row for row in rows_of["database"]}
    if len(row_of_id) < len(rows_of["database"]):
        check_unique_ids(*zip(*((ids[row], places[row]) for row in rows_of["database"]), strict=True))
    for row in rows_of["query"]:
        if ids[row] in row_of_id:
            raise DataError(
                f"{places[row]}: a query must not be in the database. Received: {ids[row]!r}, as in "
                f"{places[row_of_id[ids[row]]]}."
            )
    train = []
    for row in rows_of.get("train", []):
        if ids[row] not in row_of_id:
            raise DataError(f"{places[row]}: a training pair must be in the database. Received: {ids[row]!r}.")
        train.append(row_of_id[ids[row]])
    return Splits(
        train=np.array(train or rows_of["database"]),
        database=np.array(rows_of["database"]),
        query=np.array(rows_of["query"]),
    )


def _shape_of(example: Any) -> dict[str, int]:
    """The number of values of each feature."""
    shape = {}
    for name, feature in example.features.feature.items():
        shape[name] = len(getattr(feature, feature.WhichOneof("kind") or "bytes_list").value)
    return shape


def _features(example: Any, expected: dict[str, int], place: str) -> dict[str, Any]:
    shape = _shape_of(example)
    features: dict[str, Any] = {}
    for vector, raw in _INPUTS.items():
        if not shape.get(vector) and not shape.get(raw):
            raise DataError(f"{place}: must have `{vector}` or `{raw}`. Received: {', '.join(shape) or 'nothing'}.")
    for name in ("image", "text", "labels"):
        if shape.get(name, 0) != expected.get(name, 0):
            raise DataError(
                f"{place}: `{name}` must have {expected.get(name, 0)} values, as in the first record. Received: "
                f"{shape.get(name, 0)}."
            )
        if shape.get(name):
            features[name] = _numbers(example.features.feature[name], name, place)
    for name in ("image_bytes", "caption"):
        if bool(shape.get(name)) != bool(expected.get(name)):
            raise DataError(f"{place}: `{name}` must be in all records or in none. Received: {shape.get(name, 0)}.")
        if shape.get(name):
            features[name] = example.features.feature[name].bytes_list.value[0]
    if "image_bytes" in features and "image" not in features:
        check_picture(features["image_bytes"], place)
    if "caption" in features and "text" not in features and not features["caption"].strip():
        raise DataError(f"{place}: every pair must have a caption. Received: an empty `caption`.")
    return features


def _numbers(feature: Any, name: str, place: str) -> np.ndarray:
    if name == "labels":
        labels = np.array(feature.int64_list.value, np.int64)
        if not np.isin(labels, (0, 1)).all() or not len(labels):
            raise DataError(f"{place}: `labels` must be int64, 0 or 1. Received: {labels[:8]}.")
        return labels
    values = np.array(feature.float_list.value, np.float32)
    if not len(values) or not np.isfinite(values).all():
        raise DataError(f"{place}: `{name}` must be finite floats. Received: {values[:4]}.")
    return values
