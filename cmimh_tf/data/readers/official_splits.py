"""Splits that come with the data: files or TFDS splits called train, database and query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cmimh_tf.data.records import DataError, repeated_ids
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
