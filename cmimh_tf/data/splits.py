"""Splits into training set, database and queries: by a seed, or as the data itself marks them."""

from __future__ import annotations

import operator
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cmimh_tf.data.pairs import DataError, PairedData

SPLIT_NAMES = ("train", "database", "query")
# "all" trains on the whole database; "paper" on at most 5,000 pairs of it.
PROTOCOLS = ("all", "paper")
_MAX_QUERIES = 2000
_PAPER_TRAIN = 5000


@dataclass(frozen=True, eq=False)
class Splits:
    """Row numbers within one data set, int64, each without repeats.

    Args:
        train: [T], a subset of `database`.
        database: [M].
        query: [Q], disjoint from `database`.

    Raises:
        ValueError: if a split is empty or repeats a row, or if one of these relations does not hold.
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
    protocol: str = "all",
    is_query: Any = None,
    is_train: Any = None,
) -> Splits:
    """Splits `num_items` rows by a seeded permutation.

    With p = numpy.random.default_rng(seed).permutation(num_items), the queries are the first `num_queries` rows of p,
    the database is the rest, and the training set is the first `num_train` rows of the database, all in the order of p.

    Args:
        num_items: number of rows, N.
        seed: a non-negative integer.
        num_queries: default: min(2000, N // 8).
        num_train: default: the size of the database, or with the protocol "paper" at most 5000.
        protocol: "all" or "paper"; it sets the default of `num_train` unless there is an official training set.
        is_query: bool [N], marks an official query set. The queries are exactly these rows and the database is all
            others, still in the order of p. `num_queries` must then be None.
        is_train: bool [N], marks an official training set within that database. These rows come first in the database,
            still in the order of p, and all of them are used for training unless `num_train` is smaller.

    Raises:
        TypeError: if a number is not an integer, or a mask is not boolean.
        ValueError: if a split would be empty, or would need more rows than there are.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"`protocol` must be one of {', '.join(PROTOCOLS)}. Received: protocol={protocol!r}.")
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
        limited = protocol == "paper" and is_train is None
        num_train = min(_PAPER_TRAIN, most_train) if limited else most_train
    num_train = _check_number(num_train, "num_train", 1, most_train, most_name)
    return Splits(train=database[:num_train], database=database, query=query)


def split_data(
    data: PairedData,
    seed: int,
    *,
    num_queries: int | None = None,
    num_train: int | None = None,
    protocol: str = "all",
) -> Splits:
    """`make_splits` of paired data, by its official splits if it has any. Every command splits by this function."""
    return make_splits(
        len(data),
        seed,
        num_queries=num_queries,
        num_train=num_train,
        protocol=protocol,
        is_query=data.is_query,
        is_train=data.is_train,
    )


def splits_from_groups(
    spec: str, ids: Sequence[str], places: Sequence[str], rows_of: Mapping[str, Sequence[int]]
) -> tuple[Splits | None, list[DataError]]:
    """Official splits of data whose files or TFDS splits are called train, database and query.

    Each record of `train` repeats a record of `database`. It is matched by its id, and the copy is not used.

    Args:
        spec: name of the data for error messages.
        ids: the ids of all rows.
        places: the location of each row for error messages.
        rows_of: the rows of each split. Without `train`, the whole database is the training set.

    Returns:
        (splits, no problems), or (None, everything that is wrong).
    """
    for split in SPLIT_NAMES[1:]:
        if not rows_of.get(split):
            return None, [DataError(f"{spec}: the split {split} must not be empty. Received: no record in it.")]
    row_of_id = {ids[row]: row for row in rows_of["database"]}
    problems = []
    for split in SPLIT_NAMES[1:]:
        problems += repeated_ids([ids[row] for row in rows_of[split]], [places[row] for row in rows_of[split]])
    for row in rows_of["query"]:
        if ids[row] in row_of_id:
            problems.append(
                DataError(
                    f"{places[row]}: a query must not be in the database. Received: {ids[row]!r}, as in "
                    f"{places[row_of_id[ids[row]]]}."
                )
            )
    train = []
    for row in rows_of.get("train", []):
        if ids[row] in row_of_id:
            train.append(row_of_id[ids[row]])
        else:
            rule = "a training pair must be in the database"
            problems.append(DataError(f"{places[row]}: {rule}. Received: {ids[row]!r}."))
    if problems:
        return None, problems
    return Splits(
        train=np.array(train or rows_of["database"]),
        database=np.array(rows_of["database"]),
        query=np.array(rows_of["query"]),
    ), []


def splits_from_marks(
    marks: Sequence[str], spec: object, problems: list[DataError]
) -> tuple[Splits | None, np.ndarray | None]:
    """Official splits of data with a column `split`. Only if some rows are marked `train` are the splits complete.

    Args:
        marks: "train", "database", "query" or "" for each row. Training pairs are part of the database.
        spec: name of the data for error messages.
        problems: errors are appended to this list.

    Returns:
        (splits, None), (None, is_query) if no row is marked `train`, or (None, None) if no row is marked at all.
    """
    of_row = np.array(marks)
    is_query = of_row == "query"
    if not any(marks):
        return None, None
    if is_query.all() or not is_query.any():
        problems.append(DataError(f"{spec}: `split` must mark some rows query, not all. Received: {is_query.sum()}."))
        return None, None
    if not (of_row == "train").any():
        return None, is_query
    return Splits(np.flatnonzero(of_row == "train"), np.flatnonzero(~is_query), np.flatnonzero(is_query)), None


def check_mark(mark: object, place: str) -> None:
    """Checks the value of a column `split`.

    Raises:
        DataError: naming the row, if the value is not one of `SPLIT_NAMES`.
    """
    if str(mark).strip() not in SPLIT_NAMES:
        raise DataError(f"{place}: `split` must be train, database or query. Received: {mark!r}.")


def repeated_ids(ids: Sequence[str], places: Sequence[str], pictures: Container[str] = ()) -> list[DataError]:
    """One error for each record whose id occurred before.

    Args:
        ids: the ids of all records.
        places: the location of each record for error messages, such as "pairs.csv, line 3".
        pictures: the ids that are paths of pictures, because the data have no others.
    """
    seen: dict[str, int] = {}
    errors = []
    for row, item_id in enumerate(ids):
        if item_id in seen:
            cure = " It is the picture's path: to give other ids, add a column `id`." if item_id in pictures else ""
            errors.append(
                DataError(
                    f"{places[row]}: ids must not repeat, or a query would also be in the database. Received: "
                    f"{item_id!r}, as in {places[seen[item_id]]}.{cure}"
                )
            )
        else:
            seen[item_id] = row
    return errors


def _with_train_first(database: np.ndarray, is_train: Any, is_query: Any, num_items: int) -> tuple[np.ndarray, int]:
    """The database with the official training set first, and the size of that set."""
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
