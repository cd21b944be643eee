"""Results on disk: what was saved is found again, a failure is forgotten by success, nonsense is named."""

import pytest

from cmimh_tf.experiments.store import CellStore


@pytest.fixture
def store(tmp_path):
    return CellStore(tmp_path / "cells", "data")


def test_result_is_found_again_and_only_by_its_own_cell(store, make_cell, make_result):
    store.save(make_cell(), make_result(0.25))
    assert store.load(make_cell())["metrics"]["map"]["image_to_text"] == 0.25
    assert store.load(make_cell())["cell"]["method"] == "CVH"
    assert store.load(make_cell(seed=1)) is None
    assert CellStore(store.folder, "changed data").load(make_cell()) is None


def test_failure_is_no_result_and_vanishes_with_success(store, make_cell, make_result):
    store.save_failure(make_cell(), "ValueError: bad")
    assert store.load(make_cell()) is None
    assert store.failure_path(make_cell()).exists()
    store.save(make_cell(), make_result(0.5))
    assert not store.failure_path(make_cell()).exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"cell": {}}'])
def test_file_that_is_no_result_is_named(store, make_cell, text):
    store.folder.mkdir()
    store.path(make_cell()).write_text(text)
    with pytest.raises(ValueError, match=r"cvh-16bit-seed0-\w+\.json must hold the result of a cell.*Delete it"):
        store.load(make_cell())
