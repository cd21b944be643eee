"""Splits that come with the data: files or TFDS splits called train, database and query, or such a mark of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cmimh_tf.data.records import DataError, RecordIndex, repeated_ids
from cmimh_tf.data.splits import Splits

SPLIT_NAMES = ("train", "database", "query")


def official_splits(
    spec: str, ids: Sequence[str], places: Sequence[str], rows_of: Mapping[str, Sequence[int]]
) -> tuple[Splits | None, list[DataError]]:
    """Splits as row numbers, and what is wrong with them.

    A record of train repeats one of database: it is found there by its id, and the copy is not used.

    Args:
        spec: what the data are called in an error.
        ids: of all rows.
        places: how each row is called in an error.
        rows_of: the rows of each split; without train, the whole database is trained on.
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


def marked_splits(
    marks: Sequence[str], spec: object, problems: list[DataError]
) -> tuple[Splits | None, np.ndarray | None]:
    """Splits by a mark of each row, which are whole only if it says what is trained on; else the queries alone.

    Args:
        marks: train, database, query or "" of all rows. A training pair is part of the database.
        spec: what the data are called in an error.
        problems: gets what is wrong.

    Returns:
        (splits, None), (None, is_query), or (None, None) where no row has a mark.
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


def split_marks(index: RecordIndex) -> np.ndarray | None:
    """The mark of each row by which `marked_splits` finds the same splits again; None where nothing is official."""
    if index.splits is None and index.is_query is None:
        return None
    marks = np.full(len(index.ids), "database", dtype="U8")
    if index.splits is None:
        marks[index.is_query] = "query"
    else:
        marks[index.splits.query] = "query"
        marks[index.splits.train] = "train"
    return marks


def check_mark(mark: object, place: str) -> None:
    """Refuses another mark than those of `SPLIT_NAMES`.

    Raises:
        DataError: naming the row.
    """
    if str(mark).strip() not in SPLIT_NAMES:
        raise DataError(f"{place}: `split` must be train, database or query. Received: {mark!r}.")
