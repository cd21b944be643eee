"""The folder of a search, and its result."""

import pytest

from tuner.results import SearchFolder, describe_result

KEY = "loss.balance_weight"


def test_result_names_its_objective_and_counts(tmp_path, records, result_of):
    result = result_of(records, 4)
    assert (result["objective"], result["best_value"], result["preset_value"]) == ("val_map", 0.7, 0.5)
    assert (result["trials"], result["failed"], result["best"]) == (4, 1, {KEY: 0.3})
    assert result["mean_cost_ratio"] == pytest.approx(0.375)
    text = describe_result(result, SearchFolder(tmp_path))
    assert "best val_map: 0.7000 in trial 1; the first trial reached 0.5000" in text
    assert "38% of a full training" in text


def test_search_that_stopped_early_says_why(tmp_path, record, records, result_of):
    result = result_of(records[:3], 20)
    assert "stopped early: too many trials failed in a row" in describe_result(result, SearchFolder(tmp_path))
    assert result_of([record(0, reason="no")], 20) is None


def test_folder_of_another_search_is_refused(tmp_path):
    folder = SearchFolder(tmp_path)
    folder.claim({"objective": "val_map"})
    folder.claim({"objective": "val_map"})
    with pytest.raises(ValueError, match=r"holds another search: `objective` is 'val_map' there and 'pair_score' here"):
        folder.claim({"objective": "pair_score"})


def test_folder_is_held_by_one_search(tmp_path):
    folder = SearchFolder(tmp_path)
    with folder.locked(), pytest.raises(ValueError, match=r"`--out` must not be in use"), folder.locked():
        pass
    with folder.locked():
        pass


def test_clearing_spares_what_is_no_search(tmp_path):
    folder = SearchFolder(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    folder.clear()
    assert (tmp_path / "mine.txt").exists()
    folder.claim({})
    folder.clear()
    assert list(tmp_path.iterdir()) == []
