"""The verdict is computed: first by a deviation, by less, with one seed, or not at all."""

import pytest

from cmimh_tf.experiments.experiment import Column, Experiment, Point, Table
from cmimh_tf.experiments.results import Results
from cmimh_tf.experiments.standing import describe_standing

COLUMN = Column("image to text", "16 bits", "map.image_to_text", {"bits": 16})


def standing(make_cell, make_result, scores, references=()):
    """`scores` has a value for each seed, None where that one failed."""
    points, known = [], {}
    for row, values in scores.items():
        for seed, value in enumerate(values):
            cell = make_cell(row, seed=seed)
            points.append(Point(row, {"bits": 16}, cell))
            if value is not None:
                known[cell] = make_result(value)
    table = Table("mAP", "method", list(scores), [COLUMN], references)
    return describe_standing(Results(Experiment("x", "x", "", points, [table], (), "CMIMH", [COLUMN]), known))


def test_first_by_exactly_one_deviation(make_cell, make_result):
    # Deviations 0.25 and 0.125, difference 0.25: all exact in binary.
    scores = {"CVH": [0.375, 0.5, 0.625], "CMIMH": [0.5, 0.75, 1.0]}
    assert standing(make_cell, make_result, scores) == [
        "CMIMH is first by at least one deviation in 1 of 1 cross-modal cells."
    ]


def test_first_by_less_than_the_larger_deviation(make_cell, make_result):
    scores = {"CVH": [0.25, 0.5, 0.75], "CMIMH": [0.59, 0.6, 0.61]}
    verdict, exception = standing(make_cell, make_result, scores)
    assert "in 0 of 1" in verdict
    assert exception == "image to text, 16 bits: first by less than one deviation (CMIMH 60.0 ± 1.0, CVH 50.0 ± 25.0)."


def test_second_names_the_best_rival(make_cell, make_result):
    scores = {"CVH": [0.5, 0.5], "ACQ": [0.9, 0.9], "CMIMH": [0.8, 0.8]}
    assert "not first (CMIMH 80.0 ± 0.0, ACQ 90.0 ± 0.0)" in standing(make_cell, make_result, scores)[1]


def test_a_rival_far_below_counts_if_its_deviation_reaches_up(make_cell, make_result):
    scores = {"ACQ": [0.795, 0.8, 0.805], "CVH": [0.69, 0.79, 0.89], "CMIMH": [0.81, 0.82, 0.83]}
    verdict, exception = standing(make_cell, make_result, scores)
    assert "in 0 of 1" in verdict
    assert "first by less than one deviation (CMIMH 82.0 ± 1.0, CVH 79.0 ± 10.0)" in exception


@pytest.mark.parametrize("failed", ["CVH", "CMIMH"])
def test_a_failed_seed_is_no_victory(failed, make_cell, make_result):
    scores = {"CVH": [0.5, 0.5, 0.5], "CMIMH": [0.8, 0.8, 0.8]}
    scores[failed][1] = None
    verdict, exception = standing(make_cell, make_result, scores)
    assert "in 0 of 1" in verdict
    assert "first, with seeds missing" in exception
    assert f"{failed} {100 * scores[failed][0]:.1f} ± 0.0 (2 of 3 seeds)" in exception


def test_one_seed_proves_nothing(make_cell, make_result):
    lines = standing(make_cell, make_result, {"CVH": [0.5], "CMIMH": [0.9]})
    assert "in 0 of 1" in lines[0]
    assert "first, with one seed and so no deviation" in lines[1]


def test_references_are_no_rivals(make_cell, make_result):
    scores = {"Upper": [0.9, 0.9], "CVH": [0.5, 0.5], "CMIMH": [0.8, 0.8]}
    assert "in 1 of 1" in standing(make_cell, make_result, scores, references=["Upper"])[0]


def test_nothing_is_said_without_results(make_cell, make_result):
    assert standing(make_cell, make_result, {"CVH": [0.5], "CMIMH": []}) == []
