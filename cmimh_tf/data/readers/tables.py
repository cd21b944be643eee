"""A table of pictures and captions, one pair per row: what CSV, JSON lines and Parquet have in common.

    image,text,labels
    images/000000000136.jpg,Two giraffes in a room with people.,giraffe|person

Columns: `image` (or `file_name`), `text` (or `caption`), and optionally `labels`, `id` and `split` ("train", "database"
or "query"). A table with both names of a column is rejected. Pictures are paths relative to the table's folder;
Parquet may also hold the encoded bytes. In JSON lines and Parquet, `image` and `text` may be vectors. Labels are names,
separated by bars or in a list.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.pictures import check_picture, read_picture
from cmimh_tf.data.records import PairReader, PairRecord, RecordIndex, check_vector, even_blocks
from cmimh_tf.data.splits import check_mark, repeated_ids, splits_from_marks
from cmimh_tf.files import files_fingerprint

COLUMNS = ("image", "text", "labels", "id", "split")
_COLUMN_OF_ALIAS = {"caption": "text", "file_name": "image"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TableReader(PairReader):
    """A table of pictures and captions."""

    path: Path

    @property
    def name(self) -> str:
        folder = self.path.parent.name
        return f"{folder}-{self.path.stem}" if folder else self.path.stem

    @abc.abstractmethod
    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, Row | DataError]]:
        """Yields for each row its location and its columns under their main names, or the error in it.

        Raises:
            DataError: if the file is not such a table, or lacks a column.
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
            # Hugging Face data sets store a picture as {"bytes": ..., "path": ...}.
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


def column_names(names: Iterable[str], place: object) -> list[str]:
    """The main names of columns: `caption` becomes `text`, `file_name` becomes `image`.

    Args:
        names: the names in a header or a row.
        place: their location for error messages.

    Raises:
        DataError: if two names stand for the same column.
    """
    given = list(names)
    columns = [_COLUMN_OF_ALIAS.get(name, name) for name in given]
    for column in COLUMNS:
        if columns.count(column) > 1:
            same = ", ".join(name for name, of in zip(given, columns, strict=True) if of == column)
            raise DataError(f"{place}: `{column}` must be one column. Received: {same}.")
    return columns


def rename_columns(row: Row, place: object) -> dict[str, Any]:
    """`row` with the names of `column_names`."""
    return dict(zip(column_names(row, place), row.values(), strict=True))


def check_header(names: list[str], path: Path) -> None:
    """Checks that a table has pictures and texts.

    Raises:
        DataError: naming the missing column.
    """
    for name in ("image", "text"):
        if name not in names:
            raise DataError(f"{path}: must have a column `{name}`. Received: columns {', '.join(names) or '(none)'}.")


@functools.lru_cache(maxsize=4)
def _survey(reader: TableReader, modified_at: int) -> RecordIndex:
    ids, places, splits = [], [], []
    classes: set[str] = set()
    pictures: set[str] = set()
    problems = []
    for place, row in reader.rows():
        places.append(place)
        try:
            if isinstance(row, DataError):
                raise row
            _check_row(row, place)
            classes.update(_label_names(row, place))
            ids.append(_id(row) or place)
            if not _has_id(row):
                pictures.add(ids[-1])
            splits.append(str(row.get("split") or "").strip())
        except DataError as error:
            problems.append(error)
            # A row with an error keeps its number.
            ids.append(place)
            splits.append("")
    if not ids:
        raise DataError(f"{reader.path}: must have at least one pair. Received: none.")
    problems += repeated_ids(ids, places, pictures)
    official, is_query = splits_from_marks(splits, reader.path, problems)
    return RecordIndex(ids, even_blocks(len(ids)), is_query, official, sorted(classes) or None, problems)


def _check_row(row: Row, place: str) -> None:
    for name, what in (("image", "a picture"), ("text", "a caption")):
        value = row.get(name)
        if value is None or (isinstance(value, str | bytes) and not value.strip()):
            raise DataError(f"{place}: every pair must have {what}. Received: an empty `{name}`.")
    if row.get("split") is not None:
        check_mark(row["split"], place)


def _id(row: Row) -> str:
    return str(row["id"]).strip() if _has_id(row) else _picture_name(row)


def _has_id(row: Row) -> bool:
    return row.get("id") not in (None, "")


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
            f"{place}: `labels` must be names, separated by bars or in a list. Received: {labels!r}."
        ) from error
