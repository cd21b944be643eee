"""Folds: what is asked for was neither trained on nor is it in what is searched."""

import numpy as np
import pytest

from tuner.folds import make_folds


@pytest.mark.parametrize("folds", [1, 2, 5])
def test_held_out_pairs_are_in_neither_part(folds):
    for fold in make_folds(100, 40, folds=folds, seed=0):
        assert not np.intersect1d(fold.query, fold.database).size
        assert np.isin(fold.fit, fold.database).all()
        assert sorted([*fold.fit, *fold.query]) == list(range(40))
        assert sorted([*fold.database, *fold.query]) == list(range(100))


def test_folds_cover_the_training_set_once():
    held_out = np.concatenate([fold.query for fold in make_folds(100, 41, folds=3, seed=0)])
    assert sorted(held_out) == list(range(41))


def test_one_fold_holds_out_a_fifth():
    (fold,) = make_folds(5000, 5000, folds=1, seed=0)
    assert (len(fold.fit), len(fold.query)) == (4000, 1000)


def test_seed_decides():
    first, again, other = (make_folds(50, 50, folds=1, seed=seed)[0].query for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_large_databases_are_thinned():
    (fold,) = make_folds(50_000, 20_000, folds=1, seed=0)
    assert (len(fold.query), len(fold.database)) == (2_000, 20_000)
    assert not np.intersect1d(fold.query, fold.database).size


@pytest.mark.parametrize(("folds", "pairs"), [(0, 100), (1, 9), (30, 59)])
def test_too_few_pairs(folds, pairs):
    with pytest.raises(ValueError, match=rf"Received: folds={folds}, {pairs} training pairs."):
        make_folds(pairs, pairs, folds=folds, seed=0)
