"""Results on disk, their means and sample deviations over seeds, and the computed verdict."""

import pytest

from cmimh_tf.experiments.experiment import Column, Experiment, Point, Table
from cmimh_tf.experiments.results import CellStore, Results, describe_verdict, look_up, summarise


def test_deviation_is_that_of_a_sample():
    summary = summarise([1.0, 2.0, 3.0])
    assert (summary.mean, summary.deviation, summary.count) == (2.0, 1.0, 3)


def test_one_seed_has_no_deviation():
    assert summarise([0.5]).deviation is None


@pytest.mark.parametrize(
    ("path", "value"),
    [("a.b", 2.0), ("c", 1.0), ("a", None), ("a.x", None), ("c.b", None), ("a.none", None)],
)
def test_look_up(path, value):
    assert look_up({"a": {"b": 2, "none": None}, "c": 1.0}, path) == value


def test_values_are_chosen_by_row_and_place_and_missing_cells_are_left_out(make_cell, make_result):
    points = [
        Point("A", {"bits": bits}, make_cell(code_length=bits, seed=seed)) for bits in (16, 32) for seed in (0, 1)
    ]
    points.append(Point("B", {"bits": 16}, make_cell("ACQ")))
    known = {point.cell: make_result(0.1 * number) for number, point in enumerate(points) if number != 1}
    results = Results(Experiment("x", "x", "", points, []), known)
    assert results.values("A", "map.image_to_text", {"bits": 16}) == [0.0]
    assert results.values("A", "map.image_to_text", {}) == pytest.approx([0.0, 0.2, 0.3])
    assert results.summary("A", "map.image_to_text", {"bits": 64}) is None
    assert results.summary("B", "no such measure", {}) is None
    assert results.values(None, "map.image_to_text", {"bits": 16}) == pytest.approx([0.0, 0.4])
    partial = results.summary("A", "map.image_to_text", {"bits": 16})
    assert (partial.count, partial.missing) == (1, 1)
    assert results.summary("A", "map.image_to_text", {"bits": 32}).missing == 0


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
    with pytest.raises(ValueError, match=r"cvh-16bit-seed0-\w+\.json (is damaged|must hold the result).*[Dd]elete "):
        store.load(make_cell())


COLUMN = Column("image to text", "16 bits", "map.image_to_text", {"bits": 16})


def verdict_of(make_cell, make_result, scores, references=()):
    """`scores` has a value for each seed, None where that one failed."""
    points, known = [], {}
    for row, values in scores.items():
        for seed, value in enumerate(values):
            cell = make_cell(row, seed=seed)
            points.append(Point(row, {"bits": 16}, cell))
            if value is not None:
                known[cell] = make_result(value)
    table = Table("mAP", "method", list(scores), [COLUMN], references)
    return describe_verdict(Results(Experiment("x", "x", "", points, [table], (), "CMIMH", [COLUMN]), known))


def test_first_by_exactly_one_deviation(make_cell, make_result):
    # Deviations 0.25 and 0.125, difference 0.25: all exact in binary.
    scores = {"CVH": [0.375, 0.5, 0.625], "CMIMH": [0.5, 0.75, 1.0]}
    assert verdict_of(make_cell, make_result, scores) == [
        "CMIMH is first by at least one deviation in 1 of 1 cross-modal cells."
    ]


def test_first_by_less_than_the_larger_deviation(make_cell, make_result):
    scores = {"CVH": [0.25, 0.5, 0.75], "CMIMH": [0.59, 0.6, 0.61]}
    verdict, exception = verdict_of(make_cell, make_result, scores)
    assert "in 0 of 1" in verdict
    assert exception == "image to text, 16 bits: first by less than one deviation (CMIMH 60.0 ± 1.0, CVH 50.0 ± 25.0)."


def test_second_names_the_best_rival(make_cell, make_result):
    scores = {"CVH": [0.5, 0.5], "ACQ": [0.9, 0.9], "CMIMH": [0.8, 0.8]}
    assert "not first (CMIMH 80.0 ± 0.0, ACQ 90.0 ± 0.0)" in verdict_of(make_cell, make_result, scores)[1]


def test_a_rival_far_below_counts_if_its_deviation_reaches_up(make_cell, make_result):
    scores = {"ACQ": [0.795, 0.8, 0.805], "CVH": [0.69, 0.79, 0.89], "CMIMH": [0.81, 0.82, 0.83]}
    verdict, exception = verdict_of(make_cell, make_result, scores)
    assert "in 0 of 1" in verdict
    assert "first by less than one deviation (CMIMH 82.0 ± 1.0, CVH 79.0 ± 10.0)" in exception


@pytest.mark.parametrize("failed", ["CVH", "CMIMH"])
def test_a_failed_seed_is_no_victory(failed, make_cell, make_result):
    scores = {"CVH": [0.5, 0.5, 0.5], "CMIMH": [0.8, 0.8, 0.8]}
    scores[failed][1] = None
    verdict, exception = verdict_of(make_cell, make_result, scores)
    assert "in 0 of 1" in verdict
    assert "first, with seeds missing" in exception
    assert f"{failed} {100 * scores[failed][0]:.1f} ± 0.0 (2 of 3 seeds)" in exception


def test_one_seed_proves_nothing(make_cell, make_result):
    lines = verdict_of(make_cell, make_result, {"CVH": [0.5], "CMIMH": [0.9]})
    assert "in 0 of 1" in lines[0]
    assert "first, with one seed and so no deviation" in lines[1]


def test_references_are_no_rivals(make_cell, make_result):
    scores = {"Upper": [0.9, 0.9], "CVH": [0.5, 0.5], "CMIMH": [0.8, 0.8]}
    assert "in 1 of 1" in verdict_of(make_cell, make_result, scores, references=["Upper"])[0]


def test_nothing_is_said_without_results(make_cell, make_result):
    assert verdict_of(make_cell, make_result, {"CVH": [0.5], "CMIMH": []}) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("precision_at_100.image_to_text", 0.4),
        ("precision_at_50.image_to_text", None),
        ("precision_at_100.text_to_image", None),
    ],
)
def test_point_of_the_precision_curve_by_its_cutoff(path, value):
    assert look_up({"precision_at_k": {"k": [10, 100], "image_to_text": [0.9, 0.4]}}, path) == value
    assert look_up({"labels": False}, path) is None
