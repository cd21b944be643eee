"""Means and sample deviations over seeds."""

import pytest

from cmimh_tf.experiments.experiment import Experiment, Point
from cmimh_tf.experiments.results import Results, look_up, summarise


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
