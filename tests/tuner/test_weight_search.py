"""Which pairs a search is given: the database with its training set first, and never a query."""

import argparse
import dataclasses

import numpy as np
import pytest

from cmimh_tf.data import make_synthetic, save_npz
from tuner.search import search as search_command
from tuner.search_folder import SearchFolder
from tuner.weight_search import WeightSearch


def search_flags(data, out):
    return argparse.Namespace(
        data=str(data), out=out, preset="smoke", bits=None, epochs=None, seed=None, set=[], trials=3, folds=1,
        trial_share=0.3, algorithm="random", objective=None, weights=None, tune_also=[], grid_points=5, queries=None,
        train_pairs=None,
    )  # fmt: skip


@pytest.mark.parametrize("member", ["chief", "worker0"])
def test_a_member_on_another_machine_is_refused_in_the_folder_of_another_search(member, tmp_path, monkeypatch):
    save_npz(tmp_path / "pairs.npz", make_synthetic(60, seed=0, image_dim=6, text_dim=5))
    flags = search_flags(tmp_path / "pairs.npz", tmp_path / "search")
    folder = SearchFolder(tmp_path / "search")
    folder.claim(WeightSearch.from_flags(flags, folder).describe())
    monkeypatch.setenv("KERASTUNER_ORACLE_IP", "127.0.0.1")
    monkeypatch.setenv("KERASTUNER_TUNER_ID", member)
    ran = []
    monkeypatch.setattr(WeightSearch, "run_as_member", lambda search: ran.append(search))
    assert search_command(flags) == 0
    assert len(ran) == 1
    flags.objective = "pair_score"
    with pytest.raises(ValueError, match=r"holds another search: `objective` is 'val_map' there"):
        search_command(flags)
    flags.objective = None
    if member == "chief":
        with folder.locked(), pytest.raises(ValueError, match=r"where a search is running"):
            search_command(flags)
    assert len(ran) == 1


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
