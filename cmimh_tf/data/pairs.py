"""`PairedData`: image vectors and text vectors in pairs, with labels, ids, captions and official splits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cmimh_tf.stored_rows import Rows, StoredRows, read_blocks, take_rows

# Rows checked at a time: the masks stay small compared with the data.
_BLOCK_ROWS = 8192


class DataError(ValueError):
    """The data cannot be used for training; the message names the file and the record."""


@dataclass(frozen=True, eq=False, repr=False)
class PairedData:
    """N pairs; row n of every array belongs to pair n.

    The constructor checks all values and converts them to the types below. `image`, `text` and `labels` may be
    `StoredRows`, which are checked when they are written.

    Args:
        image: float32 [N, Di], finite, no row all zero. Other number types are converted.
        text: float32 [N, Dt], likewise.
        labels: uint8 [N, C] of 0 and 1, or None. A row of zeros is a pair without a label.
        ids: str [N], no two equal, or None. Integers are converted.
        captions: str [N], or None.
        is_query: bool [N], marks the queries of an official split, or None.
        is_train: bool [N], marks the training pairs of an official split, or None. Needs `is_query`, and no pair may
            be marked in both.
        classes: str [C], the names of the labels' columns, or None.

    Raises:
        TypeError: if an array has the wrong kind of values.
        ValueError: if a shape or a value is wrong; the message names the field and the first bad row.
    """

    image: np.ndarray
    text: np.ndarray
    labels: np.ndarray | None = None
    ids: np.ndarray | None = None
    captions: np.ndarray | None = None
    is_query: np.ndarray | None = None
    classes: np.ndarray | None = None
    is_train: np.ndarray | None = None

    def __post_init__(self) -> None:
        image = check_features(self.image, "image")
        checked: dict[str, Any] = {"image": image, "text": check_features(self.text, "text", len(image))}
        if self.labels is not None:
            checked["labels"] = check_labels(self.labels, len(image))
        if self.ids is not None:
            checked["ids"] = check_ids(self.ids, len(image))
        if self.captions is not None:
            checked["captions"] = _check_strings(self.captions, "captions", len(image))
        if self.is_query is not None:
            checked["is_query"] = _check_mask(self.is_query, "is_query", len(image))
        if self.is_train is not None:
            checked["is_train"] = _check_mask(self.is_train, "is_train", len(image))
            _check_official(checked.get("is_query"), checked["is_train"])
        if self.classes is not None:
            if self.labels is None:
                raise ValueError("`classes` must come with `labels`. Received: labels=None.")
            num_classes = checked["labels"].shape[1]
            checked["classes"] = _check_strings(self.classes, "classes", num_classes, "column of `labels`")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.image)

    def __repr__(self) -> str:
        parts = [f"{field.name} {_shape(getattr(self, field.name))}" for field in fields(self)]
        return f"PairedData({', '.join(parts)})"

    def take(self, indices: Any) -> PairedData:
        """The pairs at `indices` (int [M], each in 0..N-1), in that order."""
        rows = np.asarray(indices)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TypeError(
                "`indices` must be a list of integers. "
                f"Received: indices.shape={rows.shape}, indices.dtype={rows.dtype}."
            )
        outside = np.flatnonzero((rows < 0) | (rows >= len(self)))
        if len(outside):
            raise ValueError(
                f"`indices` must be in 0..{len(self) - 1}. Received: indices[{outside[0]}]={rows[outside[0]]}."
            )
        by_row = (field.name for field in fields(self) if field.name != "classes")
        taken: dict[str, Any] = {name: _take_rows(getattr(self, name), rows) for name in by_row}
        return PairedData(**taken, classes=self.classes)

    def fingerprint(self) -> str:
        """16 hexadecimal digits that depend on the vectors, labels and splits, but not on the file they came from."""
        digest = hashlib.sha256()
        for array in (self.image, self.text, self.labels, self.is_query, self.is_train):
            if array is not None:
                digest.update(repr((array.shape, array.dtype)).encode())
                for block in read_blocks(array):
                    digest.update(np.ascontiguousarray(block).data)
        return digest.hexdigest()[:16]


def _shape(array: np.ndarray | None) -> str:
    return "None" if array is None else str(list(array.shape))


def _take_rows(array: Rows | None, rows: np.ndarray) -> Rows | None:
    return None if array is None else take_rows(array, rows)


def _as_array(values: Any, name: str, kinds: str, rule: str, shape: str) -> np.ndarray:
    """`values` as a non-empty array whose dtype is one of `kinds` and whose rank is that of `shape`."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"`{name}` must have rows of equal length. Received: {error}.") from error
    if array.dtype.kind not in kinds:
        first = f", {name}[{', '.join('0' * array.ndim)}]={array.flat[0]!r}" if array.size else ""
        raise TypeError(f"`{name}` must hold {rule}. Received: {name}.dtype={array.dtype}{first}.")
    if array.ndim != shape.count(",") + 1 or 0 in array.shape:
        raise ValueError(
            f"`{name}` must have shape {shape} and must not be empty. Received: {name}.shape={array.shape}."
        )
    return array


def _check_rows(array: Rows, name: str, num_rows: int, what: str = "row of `image`") -> None:
    if len(array) != num_rows:
        raise ValueError(
            f"`{name}` must have one entry for each {what}, {num_rows}. "
            f"Received: {name}.shape={array.shape}, so that row {min(len(array), num_rows)} has no partner."
        )


def check_features(values: Any, name: str, num_rows: int | None = None, first_row: int = 0) -> Rows:
    """Finite float32 rows, none of them all 0. `first_row` is the number of the first one in error messages."""
    if isinstance(values, StoredRows):
        _check_rows(values, name, len(values) if num_rows is None else num_rows)
        return values
    array = _as_array(values, name, "biuf", "numbers", "[N, D]")
    if num_rows is not None:
        _check_rows(array, name, num_rows)
    with np.errstate(over="ignore"):
        features = np.ascontiguousarray(array, np.float32)
    for start in range(0, len(features), _BLOCK_ROWS):
        finite = np.isfinite(features[start : start + _BLOCK_ROWS])
        bad = np.flatnonzero(~finite.all(axis=1) | ~features[start : start + _BLOCK_ROWS].any(axis=1))
        if not len(bad):
            continue
        row = first_row + start + bad[0]
        if finite[bad[0]].all():
            raise ValueError(
                f"`{name}` must have something other than 0 in every row. Received: {name}[{row}] is all 0."
            )
        column = np.argmin(finite[bad[0]])
        value = array[start + bad[0], column]
        rule = "within the range of float32" if np.isfinite(value) else "finite"
        raise ValueError(f"`{name}` must be {rule}. Received: {name}[{row}, {column}]={value}.")
    return features


def check_labels(values: Any, num_rows: int, first_row: int = 0) -> Rows:
    """uint8 rows of 0 and 1. `first_row` is the number of the first one in error messages."""
    if isinstance(values, StoredRows):
        _check_rows(values, "labels", num_rows)
        return values
    array = _as_array(values, "labels", "biuf", "0/1 numbers", "[N, C]")
    _check_rows(array, "labels", num_rows)
    wrong = np.argwhere((array != 0) & (array != 1))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"`labels` must be 0 or 1. Received: labels[{first_row + row}, {column}]={array[row, column]}."
        )
    return array.astype(np.uint8)


def _check_mask(values: Any, name: str, num_rows: int) -> np.ndarray:
    array = _as_array(values, name, "biu", "booleans", "[N]")
    _check_rows(array, name, num_rows)
    wrong = np.flatnonzero((array != 0) & (array != 1))
    if len(wrong):
        raise ValueError(f"`{name}` must be 0 or 1. Received: {name}[{wrong[0]}]={array[wrong[0]]}.")
    return array.astype(bool)


def _check_official(is_query: np.ndarray | None, is_train: np.ndarray) -> None:
    if is_query is None:
        raise ValueError("`is_train` must come with `is_query`. Received: is_query=None.")
    both = np.flatnonzero(is_query & is_train)
    if len(both):
        raise ValueError(f"`is_train` must not mark a query. Received: row {both[0]} in both.")


def check_ids(values: Any, num_rows: int) -> np.ndarray:
    """Strings, no two equal."""
    if np.asarray(values).dtype.kind in "iu":
        values = np.asarray(values).astype(str)
    ids = _check_strings(values, "ids", num_rows, rule="strings or integers")
    first_rows = np.unique(ids, return_index=True)[1]
    if len(first_rows) < len(ids):
        row = np.setdiff1d(np.arange(len(ids)), first_rows)[0]
        raise ValueError(
            "`ids` must not repeat. "
            f"Received: ids[{row}]={str(ids[row])!r}, as in row {np.flatnonzero(ids == ids[row])[0]}."
        )
    return ids


def _check_strings(
    values: Any, name: str, num_rows: int, what: str = "row of `image`", rule: str = "strings"
) -> np.ndarray:
    array = _as_array(values, name, "US", rule, "[N]")
    _check_rows(array, name, num_rows, what)
    if array.dtype.kind == "U":
        return array
    decoded = []
    for row, value in enumerate(array):
        try:
            decoded.append(value.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"`{name}` must be UTF-8. Received: {name}[{row}]={value!r}.") from error
    return np.array(decoded)
