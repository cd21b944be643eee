"""Metadata columns as NumPy arrays, and filters evaluated on them.

A column has one entry per item of a snapshot, and follows it: `keep` drops removed items, `append` adds new ones.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from cmimh_tf.search.engines.interface import ColumnSummary
from cmimh_tf.search.filters import LABELS, NUMBER, STRING, AllOf, Comparison, Condition, like_pattern

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Column(Protocol):
    """The values of one column."""

    def keep(self, mask: np.ndarray) -> Column:
        """The column without the items where `mask` is false."""

    def append(self, count: int, values: Iterable[tuple[int, Any]]) -> Column:
        """The column with `count` more items, of which some have values: (position among the new ones, value)."""

    def passing(self, comparison: Comparison) -> np.ndarray:
        """bool [N]: which items pass."""

    def summary(self, name: str, most: int) -> ColumnSummary:
        """The range of the numbers, or up to `most` frequent values."""


def make_column(kind: str) -> Column:
    """An empty column."""
    if kind == NUMBER:
        return NumberColumn(np.empty(0))
    if kind == LABELS:
        return LabelsColumn(0, np.empty(0, np.int64), np.empty(0, np.int64), [])
    return StringColumn(np.empty(0, np.int64), [])


def evaluate(condition: Condition, passing: Callable[[Comparison], np.ndarray]) -> np.ndarray:
    """bool [N]: which items meet a condition.

    Args:
        condition: bound to the columns.
        passing: bool [N] of one comparison.
    """
    if isinstance(condition, Comparison):
        return passing(condition)
    combine = np.logical_and if isinstance(condition, AllOf) else np.logical_or
    return combine.reduce([evaluate(part, passing) for part in condition.parts])


class NumberColumn:
    """Numbers as float64; NaN where there is none."""

    def __init__(self, numbers: np.ndarray):
        self.numbers = numbers

    def keep(self, mask: np.ndarray) -> NumberColumn:
        return NumberColumn(self.numbers[mask])

    def append(self, count: int, values: Iterable[tuple[int, Any]]) -> NumberColumn:
        new = np.full(count, np.nan)
        for position, value in values:
            new[position] = value
        return NumberColumn(np.concatenate([self.numbers, new]))

    def passing(self, comparison: Comparison) -> np.ndarray:
        known = ~np.isnan(self.numbers)
        if comparison.operator == "is null":
            return ~known
        if comparison.operator == "is not null":
            return known
        if comparison.operator == "in":
            return np.isin(self.numbers, comparison.values)
        if comparison.operator == "not in":
            return known & ~np.isin(self.numbers, comparison.values)
        # NaN differs from every number, and an unknown value must not pass.
        return known & _COMPARISONS[comparison.operator](self.numbers, comparison.values[0])

    def summary(self, name: str, most: int) -> ColumnSummary:
        known = self.numbers[~np.isnan(self.numbers)]
        return ColumnSummary(name, NUMBER, range=(float(known.min()), float(known.max())) if len(known) else None)


class StringColumn:
    """Strings as numbers of a vocabulary; -1 where there is none."""

    def __init__(self, words: np.ndarray, vocabulary: list[str]):
        self.words = words
        self.vocabulary = vocabulary

    def keep(self, mask: np.ndarray) -> StringColumn:
        return StringColumn(self.words[mask], self.vocabulary)

    def append(self, count: int, values: Iterable[tuple[int, Any]]) -> StringColumn:
        numbers = {word: number for number, word in enumerate(self.vocabulary)}
        new = np.full(count, -1)
        for position, value in values:
            new[position] = numbers.setdefault(value, len(numbers))
        return StringColumn(np.concatenate([self.words, new]), list(numbers))

    def passing(self, comparison: Comparison) -> np.ndarray:
        if comparison.operator == "is null":
            return self.words < 0
        if comparison.operator == "is not null":
            return self.words >= 0
        # The last entry answers for -1, a missing value.
        passes = np.append(passing_strings(comparison, self.vocabulary), False)
        return passes[self.words]

    def summary(self, name: str, most: int) -> ColumnSummary:
        return _frequent(name, STRING, self.words[self.words >= 0], self.vocabulary, most)


class LabelsColumn:
    """Lists of labels: pairs of an item's position and the number of one of its labels.

    Args:
        count: the number of items.
        owners: int64 [P], ascending positions.
        words: int64 [P], numbers of the vocabulary.
        vocabulary: all labels.
    """

    def __init__(self, count: int, owners: np.ndarray, words: np.ndarray, vocabulary: list[str]):
        self.count = count
        self.owners = owners
        self.words = words
        self.vocabulary = vocabulary

    def keep(self, mask: np.ndarray) -> LabelsColumn:
        kept = mask[self.owners]
        moved = np.cumsum(mask) - 1
        return LabelsColumn(int(mask.sum()), moved[self.owners[kept]], self.words[kept], self.vocabulary)

    def append(self, count: int, values: Iterable[tuple[int, Any]]) -> LabelsColumn:
        numbers = {word: number for number, word in enumerate(self.vocabulary)}
        owners, words = [], []
        for position, value in values:
            for label in json.loads(value):
                owners.append(self.count + position)
                words.append(numbers.setdefault(label, len(numbers)))
        return LabelsColumn(
            self.count + count,
            np.concatenate([self.owners, np.array(owners, np.int64)]),
            np.concatenate([self.words, np.array(words, np.int64)]),
            list(numbers),
        )

    def passing(self, comparison: Comparison) -> np.ndarray:
        wanted = self.vocabulary if comparison.values == () else comparison.values
        chosen = np.isin(self.vocabulary, wanted) if self.vocabulary else np.empty(0, bool)
        having = np.zeros(self.count, bool)
        having[self.owners[chosen[self.words]]] = True
        return having if comparison.operator in ("=", "in", "is not null") else ~having

    def summary(self, name: str, most: int) -> ColumnSummary:
        return _frequent(name, LABELS, self.words, self.vocabulary, most)


def _frequent(name: str, kind: str, words: np.ndarray, vocabulary: list[str], most: int) -> ColumnSummary:
    counts = np.bincount(words, minlength=len(vocabulary))
    order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    return ColumnSummary(name, kind, [vocabulary[word] for word in order[:most]], len(order) <= most)


def passing_strings(comparison: Comparison, strings: Sequence[str]) -> np.ndarray:
    """bool [len(strings)]: which strings pass a comparison other than "is null"."""
    if comparison.operator in ("in", "not in"):
        listed = set(comparison.values)
        return np.fromiter(((text in listed) == (comparison.operator == "in") for text in strings), bool, len(strings))
    if comparison.operator in ("like", "not like"):
        matches = like_pattern(str(comparison.values[0])).fullmatch
        wanted = comparison.operator == "like"
        return np.fromiter(((matches(text) is not None) == wanted for text in strings), bool, len(strings))
    compare, value = _COMPARISONS[comparison.operator], comparison.values[0]
    return np.fromiter((compare(text, value) for text in strings), bool, len(strings))
