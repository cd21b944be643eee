"""A table of pictures and captions, one pair a row: what CSV, JSON lines and Parquet have in common.

    image,text,labels
    images/000000000136.jpg,Two giraffes in a room with people.,giraffe|person

Columns: `image` (or `file_name`), `text` (or `caption`), and optionally `labels`, `id` and `split` ("train", "database"
or "query"). Two columns for one of these are refused. A picture is a path relative to the table's folder; in Parquet it
may also be the encoded bytes. Where a format can hold lists, `image` and `text` may be vectors instead. Labels are
names, joined by bars or as a list.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.readers.official_splits import check_mark, marked_splits
from cmimh_tf.data.readers.pictures import check_picture, read_picture
from cmimh_tf.data.records import (
    DataError,
    PairReader,
    PairRecord,
    RecordIndex,
    even_blocks,
    files_fingerprint,
    repeated_ids,
)

COLUMNS = ("image", "text", "labels", "id", "split")
_COLUMN_OF_ALIAS = {"caption": "text", "file_name": "image"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TableReader(PairReader):
    """Pictures and captions by one table."""

    path: Path

    @property
    def name(self) -> str:
        folder = self.path.parent.name
        return f"{folder}-{self.path.stem}" if folder else self.path.stem

    @abc.abstractmethod
    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, Row | DataError]]:
        """Place and columns of each row from `start` on, or why a row has none. Aliases are columns already.

        Raises:
            DataError: if the file is no such table, or lacks a column.
        """

    def fingerprint(self) -> str:
        names = (_picture_name(row) for _, row in self.rows() if not isinstance(row, DataError))
        return files_fingerprint([self.path], {name: self.path.parent / name for name in names if name})

    def survey(self) -> RecordIndex:
        return _survey(self, self.path.stat().st_mtime_ns)

    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        column_of = {name: column for column, name in enumerate(self.survey().classes or [])}
        for place, row in self.rows(start, stop):
            if isinstance(row, DataError):
                yield row
                continue
            try:
                yield self._record(row, column_of, place)
            except DataError as error:
                yield error

    def _record(self, row: Row, column_of: dict[str, int], place: str) -> PairRecord:
        _check_row(row, place)
        fields: dict[str, Any] = {}
        image = row["image"]
        if isinstance(image, Mapping):
            # As Hugging Face's data sets write a picture: {"bytes": ..., "path": ...}.
            image = image["bytes"] if image.get("bytes") else image.get("path")
        if isinstance(image, bytes):
            check_picture(image, f"{place}: `image`")
            fields["image_bytes"] = image
        elif isinstance(image, str):
            fields["image_bytes"] = read_picture(self.path.parent / image.strip(), place)
        else:
            fields["image"] = check_vector(image, "image", place)
        if isinstance(row["text"], str):
            fields["caption"] = row["text"].strip()
        else:
            fields["text"] = check_vector(row["text"], "text", place)
        if column_of:
            fields["labels"] = np.zeros(len(column_of), np.uint8)
            fields["labels"][[column_of[name] for name in _label_names(row, place)]] = 1
        return PairRecord(_id(row) or place, place, **fields)


def check_vector(values: Any, name: str, place: str) -> np.ndarray:
    """Finite numbers as float32 [D]."""
    try:
        vector = np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{place}: `{name}` must be numbers. Received: {str(values)[:60]}.") from error
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise DataError(f"{place}: `{name}` must be a list of finite numbers. Received: {str(values)[:60]}.")
    return vector


def column_names(names: Iterable[str], place: object) -> list[str]:
    """`names` with other names of a column changed to the column's.

    Args:
        names: of a header, or of a row.
        place: what it is called in an error.

    Raises:
        DataError: if two of them are the same column, of which one would be lost.
    """
    given = list(names)
    columns = [_COLUMN_OF_ALIAS.get(name, name) for name in given]
    for column in COLUMNS:
        if columns.count(column) > 1:
            same = ", ".join(name for name, of in zip(given, columns, strict=True) if of == column)
            raise DataError(f"{place}: `{column}` must be one column. Received: {same}.")
    return columns


def with_columns(row: Row, place: object) -> dict[str, Any]:
    """`row` under the names of `column_names`."""
    return dict(zip(column_names(row, place), row.values(), strict=True))


def check_header(names: list[str], path: Path) -> None:
    """Refuses a table without pictures or texts."""
    for name in ("image", "text"):
        if name not in names:
            raise DataError(f"{path}: must have a column `{name}`. Received: columns {', '.join(names)}.")


@functools.lru_cache(maxsize=4)
def _survey(reader: TableReader, modified_at: int) -> RecordIndex:
    ids, places, splits = [], [], []
    classes: set[str] = set()
    problems = []
    for place, row in reader.rows():
        places.append(place)
        try:
            if isinstance(row, DataError):
                raise row
            _check_row(row, place)
            classes.update(_label_names(row, place))
            ids.append(_id(row) or place)
            splits.append(str(row.get("split") or "").strip())
        except DataError as error:
            problems.append(error)
            # A bad row keeps its place, so that row numbers stay what they are.
            ids.append(place)
            splits.append("")
    if not ids:
        raise DataError(f"{reader.path}: must have at least one pair. Received: none.")
    problems += repeated_ids(ids, places)
    official, is_query = marked_splits(splits, reader.path, problems)
    return RecordIndex(ids, even_blocks(len(ids)), is_query, official, sorted(classes) or None, problems)


def _check_row(row: Row, place: str) -> None:
    for name, what in (("image", "a picture"), ("text", "a caption")):
        value = row.get(name)
        if value is None or (isinstance(value, str | bytes) and not value.strip()):
            raise DataError(f"{place}: every pair must have {what}. Received: an empty `{name}`.")
    if row.get("split") is not None:
        check_mark(row["split"], place)


def _id(row: Row) -> str:
    given = row.get("id")
    return str(given).strip() if given not in (None, "") else _picture_name(row)


def _picture_name(row: Row) -> str:
    image = row.get("image")
    if isinstance(image, Mapping):
        image = image.get("path")
    return image.strip() if isinstance(image, str) else ""


def _label_names(row: Row, place: str) -> list[str]:
    labels = row.get("labels")
    if labels is None:
        return []
    if isinstance(labels, str):
        labels = labels.split("|")
    try:
        return [str(name).strip() for name in labels if str(name).strip()]
    except TypeError as error:
        raise DataError(
            f"{place}: `labels` must be names, joined by bars or as a list. Received: {labels!r}."
        ) from error
