"""TFRecords of tf.Examples, with or without splits of their own.

Files whose names begin with train, database and query, or that are in folders called so (or Split-train), are official
splits; others are one set, split by the seed. Keys: `image` or `image_bytes`, `text` or `caption`, optional `labels`
and `id`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.readers.official_splits import SPLIT_NAMES, official_splits
from cmimh_tf.data.readers.pictures import check_picture
from cmimh_tf.data.records import DataError, PairReader, PairRecord, RecordIndex, files_fingerprint, repeated_ids

# "train-00000-of-00010", but not "training_notes"; folders only if they are called exactly so.
_SPLIT_FILE = re.compile(rf"({'|'.join(SPLIT_NAMES)})(?![a-z])", re.IGNORECASE)
_SPLIT_FOLDER = re.compile(rf"(?:split-)?({'|'.join(SPLIT_NAMES)})", re.IGNORECASE)
_INPUTS = {"image": "image_bytes", "text": "caption"}


@dataclass(frozen=True)
class TFRecordReader(PairReader):
    """tf.Examples in TFRecord files, plain or gzip; each file is a block."""

    spec: str
    paths: tuple[Path, ...]

    @property
    def name(self) -> str:
        path = Path(self.spec)
        return path.stem.replace("*", "").strip("-_.") or path.parent.name

    def fingerprint(self) -> str:
        return files_fingerprint(self.paths)

    def survey(self) -> RecordIndex:
        return _survey(self, tuple(path.stat().st_mtime_ns for path in self.paths))

    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        if stop <= start:
            return
        index = self.survey()
        path = self.paths[[block[0] for block in index.blocks].index(start)]
        expected = _shape_of(next(_examples(self.paths[0])))
        for record, example in enumerate(_examples(path)):
            place = f"{path}, record {record}"
            try:
                yield PairRecord(index.ids[start + record], place, **_fields(example, expected, place))
            except DataError as error:
                yield error


@functools.lru_cache(maxsize=4)
def _survey(reader: TFRecordReader, modified_at: tuple[int, ...]) -> RecordIndex:
    ids: list[str] = []
    places: list[str] = []
    blocks: list[tuple[int, int]] = []
    rows_of: dict[str, list[int]] = {}
    for path in reader.paths:
        start = len(ids)
        for record, example in enumerate(_examples(path)):
            given = example.features.feature["id"].bytes_list.value if "id" in example.features.feature else []
            ids.append(given[0].decode() if given else str(len(ids)))
            places.append(f"{path}, record {record}")
        # An empty file holds no block, but the blocks tell which file to read.
        blocks.append((start, len(ids)))
        rows_of.setdefault(_split_of(path) or "", []).extend(range(start, len(ids)))
    if not ids:
        raise DataError(f"{reader.spec}: must hold at least one tf.Example. Received: {len(reader.paths)} empty files.")
    if "" in rows_of:
        return RecordIndex(ids, blocks, problems=repeated_ids(ids, places))
    splits, problems = official_splits(reader.spec, ids, places, rows_of)
    return RecordIndex(ids, blocks, splits=splits, problems=problems)


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


def _shape_of(example: Any) -> dict[str, int]:
    """The number of values of each feature."""
    shape = {}
    for name, feature in example.features.feature.items():
        shape[name] = len(getattr(feature, feature.WhichOneof("kind") or "bytes_list").value)
    return shape


def _fields(example: Any, expected: dict[str, int], place: str) -> dict[str, Any]:
    """What a `PairRecord` holds, checked against the first record."""
    shape = _shape_of(example)
    fields: dict[str, Any] = {}
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
            fields[name] = _numbers(example.features.feature[name], name, place)
    for name in ("image_bytes", "caption"):
        if bool(shape.get(name)) != bool(expected.get(name)):
            raise DataError(f"{place}: `{name}` must be in all records or in none. Received: {shape.get(name, 0)}.")
        if shape.get(name):
            fields[name] = example.features.feature[name].bytes_list.value[0]
    if "image_bytes" in fields and "image" not in fields:
        check_picture(fields["image_bytes"], place)
    if "caption" in fields:
        fields["caption"] = _caption(fields["caption"], place)
        if "text" not in fields and not fields["caption"].strip():
            raise DataError(f"{place}: every pair must have a caption. Received: an empty `caption`.")
    return fields


def _caption(encoded: bytes, place: str) -> str:
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: `caption` must be UTF-8. Received: {encoded[:40]!r}.") from error


def _numbers(feature: Any, name: str, place: str) -> np.ndarray:
    if name == "labels":
        labels = np.array(feature.int64_list.value, np.int64)
        if not np.isin(labels, (0, 1)).all() or not len(labels):
            raise DataError(f"{place}: `labels` must be int64, 0 or 1. Received: {labels[:8]}.")
        return labels.astype(np.uint8)
    values = np.array(feature.float_list.value, np.float32)
    if not len(values) or not np.isfinite(values).all():
        raise DataError(f"{place}: `{name}` must be finite floats. Received: {values[:4]}.")
    return values
