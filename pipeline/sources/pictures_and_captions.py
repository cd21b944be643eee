"""A table of picture files and captions.

    image,text,labels
    images/000000000136.jpg,Two giraffes in a room with people.,giraffe|person

`image` is a path relative to the table's folder; `caption` is another name for `text`. Optional columns: `labels`,
joined by bars; `id`, the picture's path unless given; `split`, "query" or "database".
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.sources.base import (
    DataError,
    PairSource,
    SourceIndex,
    check_unique_ids,
    even_blocks,
    files_fingerprint,
)

_SPLITS = ("query", "database")


@dataclass(frozen=True)
class Table:
    """The rows of a CSV file, and the names of its labels in alphabetical order."""

    rows: list[dict[str, str]]
    classes: list[str]
    lines: list[int]


@dataclass(frozen=True)
class CsvSource(PairSource):
    """Pictures and captions by a CSV file."""

    path: Path

    @property
    def name(self) -> str:
        folder = self.path.parent.name
        return f"{folder}-{self.path.stem}" if folder else self.path.stem

    def fingerprint(self) -> str:
        images = {row["image"]: self.path.parent / row["image"] for row in self.table().rows}
        return files_fingerprint([self.path], images)

    def table(self) -> Table:
        """The parsed file, read once a process."""
        return _read_table(self.path, self.path.stat().st_mtime_ns)

    def index(self) -> SourceIndex:
        table = self.table()
        ids = [row["id"] for row in table.rows]
        check_unique_ids(ids, (self._place(row) for row in range(len(ids))))
        is_query = None
        if table.rows and "split" in table.rows[0]:
            is_query = np.array([row["split"] == "query" for row in table.rows])
        return SourceIndex(ids, even_blocks(len(ids)), is_query)

    def read(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        table = self.table()
        columns = {name: column for column, name in enumerate(table.classes)}
        for row in range(start, stop):
            values = table.rows[row]
            features: dict[str, Any] = {
                "image_bytes": read_picture(self.path.parent / values["image"], self._place(row)),
                "caption": values["text"],
            }
            if columns:
                labels = np.zeros(len(columns), np.int64)
                labels[[columns[name] for name in _label_names(values)]] = 1
                features["labels"] = labels
            yield features

    def _place(self, row: int) -> str:
        return f"{self.path}, line {self.table().lines[row]}"


def read_picture(path: Path, place: str) -> bytes:
    """The bytes of a picture that TensorFlow can decode.

    Raises:
        DataError: if there is no such file, or it is no picture.
    """
    try:
        picture = path.read_bytes()
    except OSError as error:
        rule = "`image` must be a file that can be read"
        raise DataError(f"{place}: {rule}. Received: {path} ({error.strerror}).") from error
    check_picture(picture, f"{place}: {path}")
    return picture


def check_picture(picture: bytes, place: str) -> None:
    """Refuses bytes that are no JPEG, PNG, GIF or BMP."""
    import tensorflow as tf

    try:
        tf.io.decode_image(picture, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        begins = f"{len(picture):,} bytes that begin with {picture[:8]!r}" if picture else "an empty file"
        raise DataError(f"{place} must be a JPEG, PNG, GIF or BMP picture. Received: {begins}.") from error


@functools.lru_cache(maxsize=1)
def _read_table(path: Path, modified_at: int) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            header = ["text" if name == "caption" else name for name in reader.fieldnames or []]
            reader.fieldnames = header
            for name in ("image", "text"):
                if name not in header:
                    raise DataError(f"{path}: must have a column `{name}`. Received: columns {', '.join(header)}.")
            rows, lines = [], []
            for row in reader:
                lines.append(reader.line_num)
                rows.append(_checked(row, f"{path}, line {reader.line_num}"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: must be UTF-8. Received: {error}.") from error
    if not rows:
        raise DataError(f"{path}: must have at least one pair. Received: none.")
    return Table(rows, sorted({name for row in rows for name in _label_names(row)}), lines)


def _checked(row: dict[str | None, Any], place: str) -> dict[str, str]:
    if None in row or None in row.values():
        raise DataError(f"{place}: must have as many fields as the header. Received: {row.get(None) or 'fewer'}.")
    values = {str(name): value.strip() for name, value in row.items()}
    for name, what in (("image", "a picture"), ("text", "a caption")):
        if not values[name]:
            raise DataError(f"{place}: every pair must have {what}. Received: an empty `{name}`.")
    if values.get("split", "query") not in _SPLITS:
        raise DataError(f"{place}: `split` must be query or database. Received: {values['split']!r}.")
    values["id"] = values.get("id") or values["image"]
    return values


def _label_names(row: dict[str, str]) -> list[str]:
    return [name.strip() for name in row.get("labels", "").split("|") if name.strip()]
