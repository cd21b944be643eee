"""Which pairs are trained on, searched, and asked for: splits by seed."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

_MAX_QUERIES = 2000
_MAX_TRAIN = 5000


@dataclass(frozen=True, eq=False)
class Splits:
    """Row numbers of one data set, int64, each without repeats.

    Args:
        train: [T], a subset of `database`.
        database: [M].
        query: [Q], disjoint from `database`.

    Raises:
        ValueError: if one is empty, repeats a row, or they do not relate so.
    """

    train: np.ndarray
    database: np.ndarray
    query: np.ndarray

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _check_rows(getattr(self, field.name), field.name))
        shared = np.intersect1d(self.query, self.database)
        if len(shared):
            raise ValueError(f"`query` and `database` must be disjoint. Received: row {shared[0]} in both.")
        outside = np.setdiff1d(self.train, self.database)
        if len(outside):
            raise ValueError(f"`train` must be a subset of `database`. Received: row {outside[0]} in train only.")


def make_splits(
    num_items: int,
    seed: int,
    *,
    num_queries: int | None = None,
    num_train: int | None = None,
    is_query: Any = None,
) -> Splits:
    """Splits `num_items` rows by a seeded permutation.

    With p = numpy.random.default_rng(seed).permutation(num_items), the queries are the first `num_queries` of
    p, the database is the rest and the training set the first `num_train` of the database, all in the order
    of p.

    Args:
        num_items: number of rows, N.
        seed: a non-negative integer.
        num_queries: min(2000, N // 8) unless given.
        num_train: min(5000, size of the database) unless given.
        is_query: bool [N], an official split: the queries are exactly these rows and the database the others,
            still in the order of p. `num_queries` must then be None.

    Raises:
        TypeError: if a number is no integer, or `is_query` no booleans.
        ValueError: if the numbers leave a split empty or ask for more rows than there are.
    """
    num_items = _check_number(num_items, "num_items", 2)
    permutation = np.random.default_rng(_check_number(seed, "seed", 0)).permutation(num_items)
    if is_query is not None:
        mask = _check_mask(is_query, num_items)[permutation]
        if num_queries is not None:
            raise ValueError(f"`num_queries` must be None with `is_query`. Received: num_queries={num_queries}.")
        query, database = permutation[mask], permutation[~mask]
    else:
        if num_queries is None:
            num_queries = min(_MAX_QUERIES, num_items // 8)
            if num_queries == 0:
                raise ValueError(
                    f"`num_items` must be at least 8 unless `num_queries` is given. Received: num_items={num_items}."
                )
        num_queries = _check_number(num_queries, "num_queries", 1, num_items - 1, "num_items - 1")
        query, database = permutation[:num_queries], permutation[num_queries:]
    if num_train is None:
        num_train = min(_MAX_TRAIN, len(database))
    num_train = _check_number(num_train, "num_train", 1, len(database), "the size of the database")
    return Splits(train=database[:num_train], database=database, query=query)


def _check_number(value: Any, name: str, least: int, most: int | None = None, most_name: str = "") -> int:
    rule = f"at least {least}" if most is None else f"in {least}..{most} ({most_name})"
    message = f"`{name}` must be an integer, {rule}. Received: {name}={value!r}."
    if isinstance(value, bool):
        raise TypeError(message)
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(message) from error
    if number < least or (most is not None and number > most):
        raise ValueError(message)
    return number


def _check_mask(is_query: Any, num_items: int) -> np.ndarray:
    mask = np.asarray(is_query)
    if mask.dtype != np.bool_:
        raise TypeError(f"`is_query` must be booleans. Received: is_query.dtype={mask.dtype}.")
    if mask.shape != (num_items,):
        raise ValueError(f"`is_query` must have shape [{num_items}]. Received: is_query.shape={mask.shape}.")
    if mask.all() or not mask.any():
        raise ValueError(f"`is_query` must mark some rows, not all. Received: {mask.sum()} of {num_items}.")
    return mask


def _check_rows(values: Any, name: str) -> np.ndarray:
    rows = np.asarray(values)
    if rows.ndim != 1 or not len(rows):
        raise ValueError(f"`{name}` must be a list of at least one row. Received: {name}.shape={rows.shape}.")
    if rows.dtype.kind not in "iu":
        raise TypeError(f"`{name}` must be integers. Received: {name}.dtype={rows.dtype}.")
    ordered = np.sort(rows)
    if ordered[0] < 0:
        raise ValueError(f"`{name}` must hold row numbers from 0. Received: {ordered[0]}.")
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        raise ValueError(f"`{name}` must not repeat a row. Received: row {repeated[0]} twice.")
    return rows.astype(np.int64)
