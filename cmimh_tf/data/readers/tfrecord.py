"""TFRecords of tf.Examples: reading them, with or without official splits, and making the Examples.

Keys: `image` or `image_bytes`, `text` or `caption`, and optionally `labels`, `id` (a string or an int64) and `split`.
Files whose names begin with train, database and query, or that are in several folders with these names (or
Split-train), are official splits. In other files the key `split` may mark a record as train, database or query, like
the column of a table. Otherwise the splits are made by the seed.

A folder written by `python -m cmimh_tf.features` also contains pairs.json, with the names of the labels' columns.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.checksums import verify
from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.pictures import check_picture
from cmimh_tf.data.records import PairReader, PairRecord, RecordIndex
from cmimh_tf.data.splits import SPLIT_NAMES, check_mark, repeated_ids, splits_from_groups, splits_from_marks
from cmimh_tf.files import files_fingerprint, read_json

if TYPE_CHECKING:
    import tensorflow as tf

# Files: "train-00000-of-00010" matches, "training_notes" does not. Folders must have exactly these names.
_SPLIT_FILE = re.compile(rf"({'|'.join(SPLIT_NAMES)})(?![a-z])", re.IGNORECASE)
_SPLIT_FOLDER = re.compile(rf"(?:split-)?({'|'.join(SPLIT_NAMES)})", re.IGNORECASE)
_SHARD = re.compile(r"-(\d+)-of-(\d+)(?=\.|$)")
DESCRIPTION_FILE = "pairs.json"
_READ_BATCH = 64
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

    @property
    def num_bytes(self) -> int:
        """The size of all files, about that of the vectors in them."""
        return sum(path.stat().st_size for path in self.paths)

    def survey(self) -> RecordIndex:
        return _survey(self, tuple(path.stat().st_mtime_ns for path in self.paths))

    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        if stop <= start:
            return
        index = self.survey()
        # Compare start and stop: an empty file has the same start as the next one.
        path = self.paths[index.blocks.index((start, stop))]
        first = next(file for file, (begin, end) in zip(self.paths, index.blocks, strict=True) if end > begin)
        expected = _shape_of(next(_examples(first)))
        for record, example in enumerate(_examples(path)):
            place = f"{path}, record {record}"
            try:
                yield PairRecord(index.ids[start + record], place, **_fields(example, expected, place))
            except DataError as error:
                yield error


def make_example(features: Mapping[str, Any]) -> tf.train.Example:
    """A tf.Example of strings, bytes, integers and arrays of numbers."""
    import tensorflow as tf

    def feature(value: Any) -> tf.train.Feature:
        if isinstance(value, str | bytes):
            encoded = value.encode("utf-8") if isinstance(value, str) else value
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
        numbers = np.atleast_1d(np.asarray(value))
        if numbers.dtype.kind == "f":
            # As it is serialized: key, length, values, which need not be added one by one.
            packed = numbers.astype("<f4").tobytes()
            return tf.train.Feature(float_list=tf.train.FloatList.FromString(b"\n" + _varint(len(packed)) + packed))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))

    return tf.train.Example(
        features=tf.train.Features(feature={name: feature(value) for name, value in features.items()})
    )


def _varint(number: int) -> bytes:
    """A length as Protocol Buffers write it: seven bits per byte, the lowest first."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


@functools.lru_cache(maxsize=4)
def _survey(reader: TFRecordReader, modified_at: tuple[int, ...]) -> RecordIndex:
    ids: list[str] = []
    blocks: list[tuple[int, int]] = []
    places = _Places(reader.paths, blocks)
    rows_of: dict[str, list[int]] = {}
    marks: list[str] = []
    problems = _missing_shards(reader)
    for path, split in zip(reader.paths, _splits_of(reader.paths), strict=True):
        start = len(ids)
        verify(path)
        for record, example in enumerate(_examples(path)):
            place = f"{path}, record {record}"
            try:
                ids.append(_id(example, place) or str(len(ids)))
            except DataError as error:
                problems.append(error)
                ids.append(str(len(ids)))
            marks.append(_string(example, "split"))
            if marks[-1]:
                try:
                    check_mark(marks[-1], place)
                except DataError as error:
                    problems.append(error)
        # Also for an empty file: `scan` finds the file by the position of its block.
        blocks.append((start, len(ids)))
        rows_of.setdefault(split, []).extend(range(start, len(ids)))
    if not ids:
        raise DataError(f"{reader.spec}: must hold at least one tf.Example. Received: {len(reader.paths)} empty files.")
    unassigned = rows_of.pop("", [])
    if unassigned and rows_of:
        raise DataError(
            f"{places[unassigned[0]]}: must belong to a split, as other files do. Received: a file outside of "
            f"{', '.join(sorted(rows_of))}."
        )
    if not rows_of:
        problems += repeated_ids(ids, places)
        splits, is_query = splits_from_marks(marks, reader.spec, problems)
        return RecordIndex(ids, blocks, is_query, splits, _classes(reader), problems)
    splits, wrong = splits_from_groups(reader.spec, ids, places, rows_of)
    return RecordIndex(ids, blocks, splits=splits, problems=problems + wrong)


class _Places(Sequence[str]):
    """The location of each row, for error messages. A string for each row would take more memory than the ids."""

    def __init__(self, paths: Sequence[Path], blocks: Sequence[tuple[int, int]]):
        self.paths, self.blocks = paths, blocks

    def __len__(self) -> int:
        return self.blocks[-1][1]

    def __getitem__(self, row: Any) -> Any:
        file = next(file for file, (start, stop) in enumerate(self.blocks) if start <= row < stop)
        return f"{self.paths[file]}, record {row - self.blocks[file][0]}"


def _missing_shards(reader: TFRecordReader) -> list[DataError]:
    """One error for each set of `name-00000-of-00012` that is incomplete, as after a killed command."""
    if not Path(reader.spec).is_dir():
        return []
    found: dict[tuple[str, int], int] = {}
    for path in reader.paths:
        if match := _SHARD.search(path.name):
            key = f"{path.parent}/{path.name[: match.start()]}", int(match[2])
            found[key] = found.get(key, 0) + 1
    return [
        DataError(
            f"{name}: all {total} shards must exist. Received: {count}. If the command that writes them was stopped, "
            "run it again."
        )
        for (name, total), count in found.items()
        if count != total
    ]


def _classes(reader: TFRecordReader) -> list[str] | None:
    path = Path(reader.spec) / DESCRIPTION_FILE
    if not path.is_file():
        return None
    return read_json(path).get("classes")


def _id(example: Any, place: str) -> str:
    """The id of a record, or "" if it has none."""
    if "id" not in example.features.feature:
        return ""
    feature = example.features.feature["id"]
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value if kind else []
    if not values:
        return ""
    if kind == "float_list":
        raise DataError(f"{place}: `id` must be a string or an int64. Received: {values[0]}.")
    return str(values[0]) if kind == "int64_list" else _decoded(values[0], "id", place)


def _string(example: Any, name: str) -> str:
    given = example.features.feature[name].bytes_list.value if name in example.features.feature else []
    return given[0].decode() if given else ""


def _examples(path: Path) -> Iterator[Any]:
    import tensorflow as tf

    with path.open("rb") as file:
        compression = "GZIP" if file.read(2) == b"\x1f\x8b" else ""
    record = 0
    records = tf.data.TFRecordDataset(str(path), compression)
    try:
        # In batches, which cost one call of TensorFlow each.
        with suppress(tf.errors.OpError):
            for batch in records.batch(_READ_BATCH).as_numpy_iterator():
                for serialized in batch:
                    yield tf.train.Example.FromString(serialized)
                    record += 1
            return
        # The batch has a damaged record: read up to it.
        for serialized in records.skip(record).as_numpy_iterator():
            yield tf.train.Example.FromString(serialized)
            record += 1
    except Exception as error:
        raise DataError(f"{path}, record {record}: must be a TFRecord of tf.Examples. Received: {error}.") from error


def _splits_of(paths: Sequence[Path]) -> list[str]:
    """The split of each file, or "". A single folder called train is not a split: it may hold any data."""
    of_names = [_split(_SPLIT_FILE.match(path.name)) for path in paths]
    of_folders = [_split(_SPLIT_FOLDER.fullmatch(path.parent.name)) for path in paths]
    splits = [name or folder for name, folder in zip(of_names, of_folders, strict=True)]
    return splits if len(set(splits)) > 1 else of_names


def _split(match: re.Match[str] | None) -> str:
    return match[1].lower() if match else ""


def _shape_of(example: Any) -> dict[str, int]:
    """The number of values of each feature."""
    shape = {}
    for name, feature in example.features.feature.items():
        shape[name] = len(getattr(feature, feature.WhichOneof("kind") or "bytes_list").value)
    return shape


def _fields(example: Any, expected: dict[str, int], place: str) -> dict[str, Any]:
    """The fields of a `PairRecord`, after comparing their sizes with the first record."""
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
        fields["caption"] = _decoded(fields["caption"], "caption", place)
        if "text" not in fields and not fields["caption"].strip():
            raise DataError(f"{place}: every pair must have a caption. Received: an empty `caption`.")
    return fields


def _decoded(encoded: bytes, name: str, place: str) -> str:
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: `{name}` must be UTF-8. Received: {encoded[:40]!r}.") from error


def _numbers(feature: Any, name: str, place: str) -> np.ndarray:
    if name == "labels":
        labels = np.array(feature.int64_list.value, np.int64)
        if not np.isin(labels, (0, 1)).all() or not len(labels):
            raise DataError(f"{place}: `labels` must be int64, 0 or 1. Received: {labels[:8]}.")
        return labels.astype(np.uint8)
    # A serialized list of floats ends with its values, which need not be converted one by one.
    count = len(feature.float_list.value)
    values = np.frombuffer(feature.float_list.SerializeToString()[-4 * count :] if count else b"", "<f4").astype(
        np.float32
    )
    if not len(values) or not np.isfinite(values).all():
        raise DataError(f"{place}: `{name}` must be finite floats. Received: {values[:4]}.")
    return values
