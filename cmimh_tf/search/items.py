"""Items on their way into an index: checked ids, codes, captions, pictures and metadata, in batches of arrays."""

from __future__ import annotations

import collections
import json
import math
import operator
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cmimh_tf.codes import check_codes
from cmimh_tf.search.filters import FIELDS, LABEL_COLUMN, LABELS, NUMBER, STRING, is_unicode

SIDES = ("image", "text")
Metadata = dict[str, Any]

_LONGEST_ID = 1000
_LONGEST_NAME = 100
# 64-bit floats hold every integer up to here.
_LARGEST_INTEGER = 2**53


class ItemError(ValueError):
    """An item that cannot be stored; the message names its id."""


@dataclass(frozen=True, eq=False)
class ItemBatch:
    """N items, checked.

    Attributes:
        ids: N strings, no two equal.
        codes: for "image" and "text", uint8 [N, L/8]; a side that no item has is left out.
        present: for each side in `codes`, bool [N], which items have it.
        features: for each side, float16 [N, L], the real-valued codes; only in indexes that keep them.
        captions: N strings or None.
        pictures: N paths or addresses of pictures, or None.
        metadata: N dictionaries of strings, numbers and lists of labels.
    """

    ids: list[str]
    codes: dict[str, np.ndarray]
    present: dict[str, np.ndarray]
    features: dict[str, np.ndarray] = field(default_factory=dict)
    captions: list[str | None] | None = None
    pictures: list[str | None] | None = None
    metadata: list[Metadata] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, start: int, stop: int) -> ItemBatch:
        """The items from `start` to before `stop`."""
        return ItemBatch(
            self.ids[start:stop],
            {side: codes[start:stop] for side, codes in self.codes.items()},
            {side: present[start:stop] for side, present in self.present.items()},
            {side: features[start:stop] for side, features in self.features.items()},
            self.captions and self.captions[start:stop],
            self.pictures and self.pictures[start:stop],
            self.metadata and self.metadata[start:stop],
        )


def make_batch(
    ids: Any,
    *,
    code_length: int,
    image_codes: Any = None,
    text_codes: Any = None,
    image_features: Any = None,
    text_features: Any = None,
    has_image: Any = None,
    has_text: Any = None,
    captions: Sequence[str | None] | None = None,
    pictures: Sequence[str | None] | None = None,
    metadata: Sequence[Mapping[str, Any] | None] | Mapping[str, Sequence[Any]] | None = None,
    columns: Mapping[str, str] | None = None,
) -> tuple[ItemBatch, dict[str, str]]:
    """Checks items and brings them to the types of `ItemBatch`.

    Args:
        ids: N strings or integers.
        code_length: L.
        image_codes, text_codes: uint8 [N, L/8], or None; each item needs one of them.
        image_features, text_features: float [N, L], the real-valued codes, or None.
        has_image, has_text: bool [N], which rows of the codes count; None means all.
        captions, pictures: N strings or None.
        metadata: N mappings, or a mapping from column names to N values each.
        columns: the kinds of the metadata columns that there are already.

    Returns:
        The batch, and the kinds of all columns, new ones included.

    Raises:
        ItemError: for a wrong value; the message names the item.
        ValueError, TypeError: for arrays of the wrong shape or type.
    """
    names = check_ids(ids)
    codes: dict[str, np.ndarray] = {}
    present: dict[str, np.ndarray] = {}
    features: dict[str, np.ndarray] = {}
    for side, given, mask, real in (
        ("image", image_codes, has_image, image_features),
        ("text", text_codes, has_text, text_features),
    ):
        if given is None:
            continue
        codes[side] = _check_rows(check_codes(given, f"{side}_codes"), names, f"{side}_codes")
        if codes[side].shape[1] * 8 != code_length:
            raise ValueError(
                f"`{side}_codes` must have {code_length} bits, {code_length // 8} bytes, as the index has. Received: "
                f"{side}_codes.shape={codes[side].shape}."
            )
        present[side] = np.ones(len(names), bool) if mask is None else _check_rows(np.asarray(mask, bool), names, side)
        if real is not None:
            features[side] = _check_features(real, names, code_length, side)
    without = ~np.logical_or.reduce([np.zeros(len(names), bool), *present.values()])
    if without.any():
        raise ItemError(
            "Every item must have an image code or a text code. Received: neither for id "
            f"{names[int(np.argmax(without))]!r}."
        )
    kinds = dict(columns or {})
    batch = ItemBatch(
        names,
        codes,
        present,
        features,
        _check_texts(captions, names, "captions"),
        _check_texts(pictures, names, "pictures"),
        _check_metadata(metadata, names, kinds),
    )
    return batch, kinds


def check_ids(ids: Any) -> list[str]:
    """Ids as strings; integers are converted.

    Raises:
        ItemError: for an id that is empty, too long, or given twice.
        TypeError: for an id that is neither a string nor an integer.
    """
    if isinstance(ids, str):
        raise TypeError(f"`ids` must be a list of ids. Received: the string {ids!r}.")
    names = ids.astype(str).tolist() if isinstance(ids, np.ndarray) and ids.dtype.kind in "iuU" else list(ids)
    if set(map(type, names)) - {str}:
        names = [check_id(given) for given in names]
    joined = "\0".join(names)
    longest = max(map(len, names), default=0)
    # The checks of all ids at once are fast; only a failure looks for the id that is wrong.
    if joined.count("\0") > len(names) - 1 or "" in names or not is_unicode(joined) or longest > 250:
        for name in names:
            check_id(name)
    if len(set(names)) < len(names):
        repeated = next(name for name, count in collections.Counter(names).items() if count > 1)
        raise ItemError(f"`ids` must not repeat. Received: {repeated!r} twice.")
    return names


def check_id(given: Any) -> str:
    """One id as a string.

    Raises:
        ItemError, TypeError: as `check_ids`.
    """
    if not isinstance(given, str):
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            raise TypeError(f"`id` must be a string or an integer. Received: {given!r}.")
        return str(operator.index(given))
    if not given or "\0" in given or not is_unicode(given) or len(given.encode()) > _LONGEST_ID:
        raise ItemError(
            f"`id` must be 1 to {_LONGEST_ID} bytes of UTF-8 without NUL characters. Received: {given[:60]!r}."
        )
    return str(given)


def normalise_value(name: str, value: Any, kinds: dict[str, str], item: str) -> Any:
    """One metadata value in the form that is stored, or None if it is missing.

    Args:
        name: the column.
        value: a string, a number, a list of labels, or None.
        kinds: the kinds of the columns; a new column is added.
        item: the id, for messages.

    Raises:
        ItemError: if the value does not fit the column.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    kind = kinds.get(name) or (LABELS if name == LABEL_COLUMN else _kind_of(value, name, item))
    if name not in kinds:
        _check_name(name)
    kinds[name] = kind
    if kind == LABELS:
        given = value if isinstance(value, list | tuple | set | frozenset) else [value]
        labels = dict.fromkeys(str(label) for label in given if isinstance(label, str | int))
        if len(labels) < len(set(given)) or any(not _is_storable(label) for label in labels):
            raise ItemError(f"`{name}` must be a list of labels. Received: {value!r} for id {item!r}.")
        return list(labels) or None
    if kind == NUMBER and isinstance(value, bool | int | float) and math.isfinite(value):
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise ItemError(
                f"`{name}` must be at most 2^53, or be stored as a string. Received: {value} for id {item!r}."
            )
        return int(value) if isinstance(value, bool) else value
    if kind == STRING and isinstance(value, str) and _is_storable(value):
        return value
    rule = {NUMBER: "a finite number", STRING: "a string"}[kind]
    raise ItemError(f"`{name}` must be {rule}, as it is for the other items. Received: {value!r} for id {item!r}.")


def _kind_of(value: Any, name: str, item: str) -> str:
    if isinstance(value, bool | int | float):
        return NUMBER
    if isinstance(value, str):
        return STRING
    if isinstance(value, list | tuple | set | frozenset):
        return LABELS
    raise ItemError(f"`{name}` must be a string, a number or a list of labels. Received: {value!r} for id {item!r}.")


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise ItemError(
            f"A metadata column must have a name of at most {_LONGEST_NAME} characters. Received: {name!r}."
        )
    if name in FIELDS or '"' in name or "\\" in name:
        raise ItemError(
            f"A metadata column must not be called {', '.join(FIELDS)}, nor have quotes or backslashes in its name. "
            f"Received: {name!r}."
        )


def _is_storable(text: str) -> bool:
    return "\0" not in text and is_unicode(text)


def _check_rows(array: np.ndarray, names: Sequence[str], name: str) -> np.ndarray:
    if len(array) != len(names):
        raise ValueError(f"`{name}` must have one row for each id, {len(names)}. Received: {name}.shape={array.shape}.")
    return array


def _check_features(features: Any, names: Sequence[str], code_length: int, side: str) -> np.ndarray:
    array = _check_rows(np.asarray(features), names, f"{side}_features").astype(np.float16)
    if array.shape != (len(names), code_length):
        raise ValueError(f"`{side}_features` must have shape [{len(names)}, {code_length}]. Received: {array.shape}.")
    return array


def _check_texts(texts: Any, names: Sequence[str], name: str) -> list[str | None] | None:
    if texts is None:
        return None
    listed = texts.tolist() if isinstance(texts, np.ndarray) else list(texts)
    if len(listed) != len(names):
        raise ValueError(f"`{name}` must have one entry for each id, {len(names)}. Received: {len(listed)}.")
    for item, text in zip(names, listed, strict=True):
        if text is not None and (not isinstance(text, str) or not _is_storable(text)):
            raise ItemError(
                f"`{name}` must be strings of valid Unicode without NUL characters. Received: {text!r} for id {item!r}."
            )
    return [text or None for text in listed]


def _check_metadata(metadata: Any, names: Sequence[str], kinds: dict[str, str]) -> list[Metadata] | None:
    if metadata is None:
        return None
    if isinstance(metadata, Mapping):
        for name, values in metadata.items():
            if len(values) != len(names):
                raise ValueError(
                    f"`metadata[{name!r}]` must have one value for each id, {len(names)}. Received: {len(values)}."
                )
        rows: Iterable[Any] = (
            dict(zip(metadata, values, strict=True)) for values in zip(*metadata.values(), strict=True)
        )
        metadata = list(rows) if metadata else [{}] * len(names)
    if len(metadata) != len(names):
        raise ValueError(f"`metadata` must have one entry for each id, {len(names)}. Received: {len(metadata)}.")
    checked = []
    for item, given in zip(names, metadata, strict=True):
        values = {}
        for name, value in (given or {}).items():
            column = LABEL_COLUMN if name == "labels" else name
            stored = normalise_value(column, value, kinds, item)
            if stored is not None:
                values[column] = stored
        checked.append(values)
    return checked


def item_checksum(
    name: str,
    image: bytes | None,
    text: bytes | None,
    image_features: bytes | None,
    text_features: bytes | None,
    caption: str | None,
    picture: str | None,
    metadata: Metadata,
) -> int:
    """A checksum of everything that is stored about an item.

    Numbers count by their value: databases write 100000.0 and 1e5 alike.
    """
    plain = {
        column: float(value) if isinstance(value, int | float) else value for column, value in sorted(metadata.items())
    }
    described = json.dumps([name, caption, picture, plain], ensure_ascii=False)
    checksum = zlib.crc32(described.encode())
    for part in (image, text, image_features, text_features):
        checksum = zlib.crc32(b"-" if part is None else b"+" + part, checksum)
    return checksum
