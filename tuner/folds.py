"""Which pairs a trial trains on and is judged by: k folds of the training set, or one part held out.

The queries of the evaluation protocol take no part. Fold f of k trains on the training pairs outside the fold and asks
for the pairs inside it, among all other pairs of the database:

    fit       training pairs outside fold f
    query     training pairs inside fold f
    database  the whole database without fold f
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Share of the training set that is held out when there is only one fold.
HOLDOUT_SHARE = 0.2
_MAX_QUERIES = 2_000
_MAX_DATABASE = 20_000
_LEAST_PAIRS = 10


@dataclass(frozen=True, eq=False)
class Fold:
    """Rows of the database, int64, in ascending order.

    Attributes:
        fit: what is trained on.
        query: what is asked for, disjoint from `fit` and `database`.
        database: what is searched, with `fit` in it.
    """

    fit: np.ndarray
    query: np.ndarray
    database: np.ndarray


def make_folds(num_database: int, num_train: int, *, folds: int, seed: int) -> list[Fold]:
    """Splits the training set, which is the first `num_train` rows of the database.

    Args:
        num_database: rows of the database.
        num_train: rows of the training set.
        folds: k; 1 holds out a fifth once.
        seed: of the permutation that makes the folds.

    Returns:
        `folds` folds. More than 2,000 queries or 20,000 database rows are thinned to a seeded choice of these.

    Raises:
        ValueError: if there are too few training pairs for that many folds.
    """
    if folds < 1 or num_train < max(_LEAST_PAIRS, 2 * folds):
        raise ValueError(
            f"`folds` must be at least 1, with at least {_LEAST_PAIRS} training pairs and two for each fold. "
            f"Received: folds={folds}, {num_train} training pairs."
        )
    generator = np.random.default_rng([seed, 3])
    order = generator.permutation(num_train)
    parts = [order[: round(HOLDOUT_SHARE * num_train)]] if folds == 1 else np.array_split(order, folds)
    return [_fold(rows, num_database, num_train, generator) for rows in parts]


def _fold(held_out: np.ndarray, num_database: int, num_train: int, generator: np.random.Generator) -> Fold:
    fit = np.setdiff1d(np.arange(num_train), held_out)
    database = np.setdiff1d(np.arange(num_database), held_out)
    if len(database) > _MAX_DATABASE:
        database = np.sort(generator.choice(database, _MAX_DATABASE, replace=False))
    return Fold(fit, np.sort(held_out[:_MAX_QUERIES]), database)
