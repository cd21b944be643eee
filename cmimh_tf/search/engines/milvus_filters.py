"""Filters as expressions of Milvus.

Milvus Lite takes no parameters and cannot negate an expression. Each entity therefore has a field `filter` with

    numbers, strings   by the hash of their column
    flags              1 for the hash of each column that the item has, and of each value that it has in a column

so that most filters compare flags and numbers. Texts appear in an expression only for <, > and `like`, with quotes and
backslashes escaped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from cmimh_tf.search.engines.interface import StoredItem
from cmimh_tf.search.filters import FIELDS, LABELS, NUMBER, AllOf, Comparison, Condition, FilterError


def to_expression(condition: Condition, rows_with: Callable[[str], list[int]]) -> str:
    """A condition, bound to the columns, as an expression of Milvus.

    Args:
        condition: bound to the columns.
        rows_with: the rows that meet an expression; for `not like`, which Milvus Lite cannot negate.
    """
    if isinstance(condition, Comparison):
        return _comparison(condition, rows_with)
    word = " and " if isinstance(condition, AllOf) else " or "
    return word.join(f"({to_expression(part, rows_with)})" for part in condition.parts)


def _comparison(comparison: Comparison, rows_with: Callable[[str], list[int]]) -> str:
    operator, values, column = comparison.operator, comparison.values, comparison.column
    if operator in ("is null", "is not null"):
        if column == "id":
            return "row >= 0" if operator == "is not null" else "row < 0"
        if column in FIELDS:
            return f'{column} {"==" if operator == "is null" else "!="} ""'
        return _flag(column, None, operator == "is not null")
    if comparison.kind == LABELS or (comparison.kind != NUMBER and operator in ("=", "!=", "in", "not in")):
        return _one_of(comparison, [str(value) for value in values])
    if comparison.kind == NUMBER:
        return _number_comparison(comparison)
    field = column if column in FIELDS else f'filter["strings"]["{hash_text(column)}"]'
    # Fields hold "" where there is nothing.
    known = f'{field} != ""' if column in FIELDS else _flag(column, None, True)
    text = str(values[0])
    if operator == "like":
        return _like(field, known, text)
    if operator == "not like":
        rows = rows_with(_like(field, known, text))
        return f"{known} and row not in {rows}" if rows else known
    return f"{known} and {field} {operator} {_literal(text)}"


def _one_of(comparison: Comparison, values: list[str]) -> str:
    """Whether a text is, or labels have, one of some values; by hashes."""
    wanted = comparison.operator in ("=", "in")
    column = comparison.column
    if column == "id":
        keys = ", ".join(f'"{hash_text(value)}"' for value in values)
        return f"key {'in' if wanted else 'not in'} [{keys}]"
    flags = (" or " if wanted else " and ").join(f"({_flag(column, value, wanted)})" for value in values)
    if wanted or comparison.kind == LABELS:
        return flags
    return f"({_flag(column, None, True)}) and {flags}"


def _number_comparison(comparison: Comparison) -> str:
    field = f'filter["numbers"]["{hash_text(comparison.column)}"]'
    known = _flag(comparison.column, None, True)
    numbers = ", ".join(repr(float(value)) for value in comparison.values)
    if comparison.operator in ("in", "not in"):
        return f"{known} and {field} {comparison.operator} [{numbers}]"
    symbol = {"=": "=="}.get(comparison.operator, comparison.operator)
    return f"{known} and {field} {symbol} {numbers}"


def _like(field: str, known: str, pattern: str) -> str:
    while "%%" in pattern:
        pattern = pattern.replace("%%", "%")
    if pattern == "%":
        return known
    if "\\" in pattern:
        raise FilterError(f"`where` must not have a backslash in `like` with Milvus. Received: {pattern!r}.")
    return f"{known} and {field} like {_literal(pattern)}"


def _flag(column: str, value: str | None, wanted: bool) -> str:
    """Whether an item has a column, or a value in it. A flag that is not there differs from 1."""
    return f'filter["flags"]["{_flag_name(column, value)}"] {"==" if wanted else "!="} 1'


def _flag_name(column: str, value: str | None) -> str:
    return hash_text(column if value is None else f"{column}\0{value}")


def hash_text(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


def _literal(text: str) -> str:
    if not text.isprintable():
        raise FilterError(f"`where` must not have control characters with Milvus. Received: {text!r}.")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def filter_values(item: StoredItem) -> dict[str, Any]:
    """What expressions look at: numbers and strings by the hash of their column, and flags."""
    numbers, strings, flags = {}, {}, {}
    fields = {"caption": item.caption, "picture": item.picture}
    for column, value in (*item.metadata.items(), *fields.items()):
        if value is None:
            continue
        flags[_flag_name(column, None)] = 1
        if isinstance(value, int | float):
            numbers[hash_text(column)] = value
            continue
        if isinstance(value, str) and column not in FIELDS:
            strings[hash_text(column)] = value
        for text in [value] if isinstance(value, str) else value:
            flags[_flag_name(column, text)] = 1
    return {"numbers": numbers, "strings": strings, "flags": flags}
