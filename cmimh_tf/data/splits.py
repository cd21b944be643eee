"""Which pairs are trained on, searched, and asked for: splits by seed, or official ones."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cmimh_tf.data.paired import PairedData

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
    is_train: Any = None,
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
        is_train: bool [N], an official training set within that database: it comes first in the database, still in
            the order of p, and all of it is trained on unless `num_train` asks for fewer.

    Raises:
        TypeError: if a number is no integer, or a mark no booleans.
        ValueError: if the numbers leave a split empty or ask for more rows than there are.
    """
    num_items = _check_number(num_items, "num_items", 2)
    permutation = np.random.default_rng(_check_number(seed, "seed", 0)).permutation(num_items)
    if is_query is not None:
        mask = _check_mask(is_query, "is_query", num_items)[permutation]
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
    most_train, most_name = len(database), "the size of the database"
    if is_train is not None:
        database, most_train = _with_train_first(database, is_train, is_query, num_items)
        most_name = "the size of the official training set"
    if num_train is None:
        num_train = min(_MAX_TRAIN, most_train) if is_train is None else most_train
    num_train = _check_number(num_train, "num_train", 1, most_train, most_name)
    return Splits(train=database[:num_train], database=database, query=query)


def split_data(data: PairedData, seed: int, *, num_queries: int | None = None, num_train: int | None = None) -> Splits:
    """Splits of pairs by `make_splits`, official where the data marks them. All commands split by this."""
    return make_splits(
        len(data), seed, num_queries=num_queries, num_train=num_train, is_query=data.is_query, is_train=data.is_train
    )


def _with_train_first(database: np.ndarray, is_train: Any, is_query: Any, num_items: int) -> tuple[np.ndarray, int]:
    """The database with the official training set at its head, and the size of that."""
    if is_query is None:
        raise ValueError("`is_train` must come with `is_query`. Received: is_query=None.")
    mask = _check_mask(is_train, "is_train", num_items)
    both = np.flatnonzero(mask & np.asarray(is_query))
    if len(both):
        raise ValueError(f"`is_train` must not mark a query. Received: row {both[0]} in both.")
    return np.concatenate([database[mask[database]], database[~mask[database]]]), int(mask.sum())


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


def _check_mask(values: Any, name: str, num_items: int) -> np.ndarray:
    mask = np.asarray(values)
    if mask.dtype != np.bool_:
        raise TypeError(f"`{name}` must be booleans. Received: {name}.dtype={mask.dtype}.")
    if mask.shape != (num_items,):
        raise ValueError(f"`{name}` must have shape [{num_items}]. Received: {name}.shape={mask.shape}.")
    if mask.all() or not mask.any():
        raise ValueError(f"`{name}` must mark some rows, not all. Received: {mask.sum()} of {num_items}.")
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
