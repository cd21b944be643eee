"""Which pairs a search is given: the database with its training set first, and never a query."""

import argparse
import dataclasses

import numpy as np

from cmimh_tf.data import make_synthetic, save_npz
from tuner.search_folder import SearchFolder
from tuner.weight_search import WeightSearch


def search_flags(data, out):
    return argparse.Namespace(
        data=str(data), out=out, preset="smoke", bits=None, epochs=None, seed=None, set=[], trials=3, folds=1,
        trial_share=0.3, algorithm="random", objective=None, weights=None, tune_also=[], grid_points=5, queries=None,
        train_pairs=None,
    )  # fmt: skip


def test_an_official_training_set_is_what_is_trained_on(tmp_path):
    rows = np.arange(60)
    marks = {"is_query": rows % 10 == 3, "is_train": rows % 3 == 1}
    marks["is_train"] &= ~marks["is_query"]
    data = make_synthetic(60, seed=0, image_dim=6, text_dim=5)
    save_npz(tmp_path / "pairs.npz", dataclasses.replace(data, ids=rows.astype(str), **marks))
    search = WeightSearch.from_flags(search_flags(tmp_path / "pairs.npz", tmp_path), SearchFolder(tmp_path / "search"))
    searched = search.pool.ids.astype(int)
    assert sorted(searched[: search.num_train]) == np.flatnonzero(marks["is_train"]).tolist()
    assert sorted(searched) == np.flatnonzero(~marks["is_query"]).tolist()
