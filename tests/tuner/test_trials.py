"""Records, trials.csv and the table on the screen."""

import csv
import io

import pytest

from tuner.trials import TrialTable, best_trial, write_csv

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
