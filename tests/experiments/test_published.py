"""Published figures: sourced, marked as cited, and shown only beside the same measure of the same data set."""

import pytest

from cmimh_tf.experiments.experiment import Column
from cmimh_tf.experiments.published import (
    DATA_SETS,
    data_set_of,
    published_figure,
    published_label,
    published_rows,
)
from cmimh_tf.experiments.published_figures import PUBLISHED_ROWS
from cmimh_tf.metrics.evaluation import TASKS


@pytest.mark.parametrize("row", PUBLISHED_ROWS, ids=lambda row: f"{row.method}-{row.data_set}-{row.setting}")
def test_every_row_has_a_source_and_possible_figures(row):
    assert row.data_set in DATA_SETS
    assert len(row.source) > 20
    assert "cited" in published_label(row)
    for task, by_bits in row.figures.items():
        assert task in TASKS
        for bits, percent in by_bits.items():
            assert bits % 8 == 0
            assert 0 < percent < 100


@pytest.mark.parametrize(
    ("title", "data_set"),
    [
        ("mirflickr25k", "mirflickr25k"),
        ("MIRFlickr-25k_vgg", "mirflickr25k"),
        ("nus_wide", "nuswide"),
        ("coco18k", None),
        ("wiki", None),
    ],
)
def test_data_set_by_file_name(title, data_set):
    assert data_set_of(title) == data_set


def test_rows_belong_to_data_set_and_setting():
    assert [row.method for row in published_rows("mirflickr25k", "map50")] == ["CVH", "CMFH", "UDCMH", "DJSRH"]
    assert published_rows("mirflickr25k", None) == []
    assert published_rows("coco18k", "map50") == []


def test_figure_belongs_to_measure_and_bits():
    row = next(row for row in published_rows("nuswide", "map50") if row.method == "UDCMH")
    assert published_figure(row, Column("", "", "map_at_50.text_to_image", {"bits": 64})) == 69.5
    assert published_figure(row, Column("", "", "map.text_to_image", {"bits": 64})) is None
    assert published_figure(row, Column("", "", "map_at_50.text_to_text", {"bits": 64})) is None
    assert published_figure(row, Column("", "", "map_at_50.text_to_image", {"bits": 48})) is None
