"""A cell's file name stands for all that decides its result, and for nothing else."""

import dataclasses

import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.experiments.experiment import Cell, SplitSetting


def test_name_is_readable(make_cell):
    stem = make_cell("ACQ (tuned ridge)", 32, 2).file_stem("data")
    assert stem.startswith("acq-tuned-ridge-32bit-seed2-")
    assert len(stem.rpartition("-")[2]) == 12


def test_name_changes_with_all_that_decides_the_result(make_cell):
    cell = make_cell("CMIMH")
    others = [
        make_cell("CMIMH", 24),
        make_cell("CMIMH", seed=1),
        make_cell("CMIMH", **{"loss.balance_weight": 0.5}),
        dataclasses.replace(cell, split=SplitSetting(20, 51)),
        dataclasses.replace(cell, split=SplitSetting(20, 50, 5)),
        dataclasses.replace(cell, method="CMIMH step time"),
    ]
    stems = {cell.file_stem("data"), cell.file_stem("other data"), *(other.file_stem("data") for other in others)}
    assert len(stems) == 8


def test_variants_that_resolve_to_the_same_configuration_are_one_cell(make_cell):
    default = get_preset("smoke").loss.balance_weight
    same = make_cell("CMIMH", **{"loss.balance_weight": default})
    assert same == make_cell("CMIMH")
    assert same.file_stem("data") == make_cell("CMIMH").file_stem("data")


def test_configuration_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"`config` must have the code length .* config.code_length=16"):
        Cell("CMIMH", 32, 0, SplitSetting(20, 50), get_preset("smoke"))
