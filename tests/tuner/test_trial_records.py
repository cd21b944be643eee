"""Records, trials.csv, the table and the result."""

import csv
import io

import pytest

from tuner.search_folder import SearchFolder
from tuner.search_result import describe_result
from tuner.trial_records import best_trial, write_csv
from tuner.trial_table import TrialTable

KEY = "loss.balance_weight"


def test_cost_is_against_a_full_training_at_the_same_pace(record):
    # 400 steps at 0.2 seconds are 80 seconds.
    assert record(0, 0.5).cost_ratio == pytest.approx(30 / 80)
    assert record(0).cost_ratio is None


def test_best_is_among_those_trained_longest(record, records):
    assert best_trial(records, "val_map").number == 1
    halved = [record(0, 0.9, epochs=3), record(1, 0.6, epochs=9), record(2, 0.5, epochs=9)]
    assert best_trial(halved, "val_map").number == 1
    assert best_trial([record(0, reason="no")], "val_map") is None


def test_csv_has_a_row_for_each_trial(tmp_path, records):
    write_csv(tmp_path / "trials.csv", records, [KEY])
    rows = list(csv.DictReader(io.StringIO((tmp_path / "trials.csv").read_text())))
    assert [row["status"] for row in rows] == ["completed", "completed", "failed", "running"]
    assert (rows[1]["val_map"], rows[1][KEY], rows[1]["cost_ratio"]) == ("0.7", "0.3", "0.375")
    assert (rows[2]["val_map"], rows[2]["reason"]) == ("", "collapse, of course")


def test_table_tells_each_trial_once(records):
    stream = io.StringIO()
    table = TrialTable("val_map", [KEY], total=5, workers=2, stream=stream)
    assert table.update(records[:2])
    assert not table.update(records[:2])
    assert table.update(records)
    lines = stream.getvalue().splitlines()
    assert lines[0].split() == ["trial", "val_map", "best", "balance", "time", "left"]
    assert lines[2].split() == ["1", "*", "0.7000", "0.7000", "0.3", "30", "s", "45", "s"]
    assert lines[3].split()[:2] == ["2", "failed"]
    assert lines[4].strip() == "collapse, of course"
    assert len(lines) == 5


def test_result_names_its_objective_and_counts(tmp_path, records, result_of):
    result = result_of(records, 4)
    assert (result["objective"], result["best_value"], result["preset_value"]) == ("val_map", 0.7, 0.5)
    assert (result["trials"], result["failed"], result["best"]) == (4, 1, {KEY: 0.3})
    assert result["mean_cost_ratio"] == pytest.approx(0.375)
    text = describe_result(result, SearchFolder(tmp_path))
    assert "best val_map: 0.7000 in trial 1; the preset had 0.5000" in text
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
    with folder.locked(), pytest.raises(ValueError, match=r"`out` must not be in use"), folder.locked():
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
