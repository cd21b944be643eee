"""WebDataset-style shards: tar files in which the files of one pair are adjacent and share a name.

    000001.jpg  000001.txt  000001.json      the key is the name up to its first dot

`.jpg`, `.jpeg`, `.png`, `.gif` and `.bmp` are pictures, `.txt` and `.caption` captions; `.image.npy` and `.text.npy`
are vectors; `.cls` holds a label, and `.json` may hold `caption` (or `text`), `labels` (a list of names) and `id`.
"""

from __future__ import annotations

import functools
import io
import json
import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.pictures import check_picture
from cmimh_tf.data.records import ROWS_PER_BLOCK, PairReader, PairRecord, RecordIndex, check_vector, even_blocks
from cmimh_tf.data.splits import repeated_ids
from cmimh_tf.files import files_fingerprint

_PICTURES = ("jpg", "jpeg", "png", "gif", "bmp")
_CAPTIONS = ("txt", "caption")
_ABOUT = ("json", "cls")


@dataclass(frozen=True)
class Sample:
    """The files of one pair: (offset, size) within the shard, by extension."""

    path: Path
    key: str
    parts: dict[str, tuple[int, int]]

    @property
    def place(self) -> str:
        return f"{self.path}, sample {self.key}"


@dataclass(frozen=True)
class TarReader(PairReader):
    """Tar shards, plain or gzip. Several workers can read one plain shard; a gzip shard is one block."""

    spec: str
    paths: tuple[Path, ...]

    @property
    def name(self) -> str:
        name = Path(self.spec).name.split(".")[0].replace("*", "").strip("-_")
        return name or Path(self.spec).absolute().parent.name

    def fingerprint(self) -> str:
        return files_fingerprint([], {path.name: path for path in self.paths})

    def survey(self) -> RecordIndex:
        return _survey(self, tuple(path.stat().st_mtime_ns for path in self.paths))[0]

    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        index, samples = _survey(self, tuple(path.stat().st_mtime_ns for path in self.paths))
        column_of = {name: column for column, name in enumerate(index.classes or [])}
        archive: tarfile.TarFile | None = None
        try:
            for row in range(start, stop):
                if archive is None or Path(str(archive.name)) != samples[row].path:
                    if archive is not None:
                        archive.close()
                    archive = _open(samples[row].path)
                try:
                    yield _record(archive, samples[row], index.ids[row], column_of)
                except DataError as error:
                    yield error
        finally:
            if archive is not None:
                archive.close()


@functools.lru_cache(maxsize=4)
def _survey(reader: TarReader, modified_at: tuple[int, ...]) -> tuple[RecordIndex, list[Sample]]:
    samples: list[Sample] = []
    ids: list[str] = []
    blocks: list[tuple[int, int]] = []
    classes: set[str] = set()
    problems: list[DataError] = []
    for path in reader.paths:
        start = len(samples)
        with _open(path) as archive:
            samples += _samples(archive, path)
            for sample in samples[start:]:
                # Keys need only be unique within their shard.
                key = sample.key if len(reader.paths) == 1 else f"{path.name.split('.')[0]}/{sample.key}"
                try:
                    about = _about(_contents(archive, sample, _ABOUT), sample.place)
                    classes.update(about["labels"])
                    ids.append(str(about.get("id") or key))
                except DataError as error:
                    problems.append(error)
                    ids.append(key)
        is_compressed = path.suffix in (".gz", ".tgz")
        size = max(len(samples) - start, 1) if is_compressed else ROWS_PER_BLOCK
        blocks += [(start + first, start + after) for first, after in even_blocks(len(samples) - start, size)]
    if not samples:
        raise DataError(f"{reader.spec}: must hold at least one pair. Received: {len(reader.paths)} empty shards.")
    problems += repeated_ids(ids, [sample.place for sample in samples])
    return RecordIndex(ids, blocks, classes=sorted(classes) or None, problems=problems), samples


def _open(path: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(path)
    except (tarfile.TarError, OSError) as error:
        raise DataError(f"{path}: must be a tar file. Received: {error}.") from error


def _samples(archive: tarfile.TarFile, path: Path) -> list[Sample]:
    samples: list[Sample] = []
    try:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            if not member.isfile() or name.startswith("."):
                continue
            stem, _, extension = name.partition(".")
            key = f"{folder}/{stem}".removeprefix("./").lstrip("/")
            if not samples or samples[-1].key != key:
                samples.append(Sample(path, key, {}))
            samples[-1].parts[extension.lower()] = (member.offset_data, member.size)
    except (tarfile.TarError, OSError, EOFError) as error:
        after = f"after sample {samples[-1].key}" if samples else "at its start"
        raise DataError(f"{path}: is truncated or damaged {after} ({error}).") from error
    return samples


def _contents(archive: tarfile.TarFile, sample: Sample, extensions: Collection[str | None]) -> dict[str, bytes]:
    """The files with one of `extensions`, read in order of offset: seeking back in a gzip file unpacks it again."""
    assert archive.fileobj is not None  # It was opened for reading.
    contents = {}
    for extension, (offset, size) in sorted(sample.parts.items(), key=lambda part: part[1]):
        if extension in extensions:
            archive.fileobj.seek(offset)
            contents[extension] = archive.fileobj.read(size)
            if (read := len(contents[extension])) < size:
                raise DataError(f"{sample.place}: the shard is truncated. Received: {read:,} of {size:,} bytes.")
    return contents


def _about(contents: Mapping[str, bytes], place: str) -> dict[str, Any]:
    """The content of .json and .cls, with `labels` as a list of names."""
    about: dict[str, Any] = {}
    if "json" in contents:
        try:
            about = json.loads(contents["json"])
        except ValueError as error:
            raise DataError(f"{place}: .json must be a JSON object. Received: {error}.") from error
        if not isinstance(about, dict) or not isinstance(about.get("labels", []), list):
            raise DataError(f"{place}: .json must be an object with `labels` a list. Received: {about!r}.")
    labels = [str(name) for name in about.get("labels", [])]
    if "cls" in contents:
        labels.append(_text(contents, "cls", place))
    return {**about, "labels": labels}


def _text(contents: Mapping[str, bytes], extension: str, place: str) -> str:
    try:
        return contents[extension].decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: .{extension} must be UTF-8. Received: {error}.") from error


def _vector(contents: Mapping[str, bytes], name: str, place: str) -> np.ndarray:
    try:
        values = np.load(io.BytesIO(contents[f"{name}.npy"]), allow_pickle=False)
    except ValueError as error:
        raise DataError(f"{place}: .{name}.npy must be an array of numbers. Received: {error}.") from error
    return check_vector(values, name, place)


def _record(archive: tarfile.TarFile, sample: Sample, item_id: str, column_of: dict[str, int]) -> PairRecord:
    place = sample.place
    picture = next((extension for extension in _PICTURES if extension in sample.parts), None)
    caption = next((extension for extension in _CAPTIONS if extension in sample.parts), None)
    contents = _contents(archive, sample, {*_ABOUT, "image.npy", "text.npy", picture, caption})
    about = _about(contents, place)
    fields: dict[str, Any] = {}
    fields.update({name: _vector(contents, name, place) for name in ("image", "text") if f"{name}.npy" in contents})
    if picture is not None:
        fields["image_bytes"] = contents[picture]
        check_picture(fields["image_bytes"], f"{place}: .{picture}")
    text = _text(contents, caption, place) if caption else str(about.get("caption") or about.get("text") or "").strip()
    if text:
        fields["caption"] = text
    received = ", ".join(f".{extension}" for extension in sample.parts)
    if "image" not in fields and "image_bytes" not in fields:
        raise DataError(f"{place}: every pair must have a picture. Received: {received}.")
    if "text" not in fields and "caption" not in fields:
        raise DataError(f"{place}: every pair must have a caption. Received: {received}.")
    if column_of:
        fields["labels"] = np.zeros(len(column_of), np.uint8)
        fields["labels"][[column_of[name] for name in about["labels"]]] = 1
    return PairRecord(item_id, place, **fields)
