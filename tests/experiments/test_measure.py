"""Measuring a cell: the split and the figures of the training command, and baselines measured by hand."""

import dataclasses

import numpy as np
import pytest

from cmimh_tf.baselines.cca_hashers import CVH
from cmimh_tf.config import get_preset
from cmimh_tf.data.splits import make_splits
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.experiments.experiment import Cell, SplitSetting
from cmimh_tf.experiments.measure import measure, split_parts
from cmimh_tf.experiments.options import DataFacts
from cmimh_tf.metrics.evaluation import CodedItems, evaluate_retrieval
from cmimh_tf.overrides import override
from cmimh_tf.training.evaluation import evaluate_model
from cmimh_tf.training.trainer import train_model


@pytest.fixture(scope="module")
def data():
    pairs = make_synthetic(200, seed=0)
    return dataclasses.replace(pairs, ids=np.arange(200))


def test_split_is_that_of_the_training_command(data):
    splits = make_splits(200, 3, num_queries=25, num_train=60)
    parts = split_parts(Cell("CVH", 16, 3, SplitSetting(25, 60)), data)
    for name in ("train", "query", "database"):
        np.testing.assert_array_equal(getattr(parts, name).ids, data.ids[getattr(splits, name)])


def test_official_queries_are_taken(data):
    marked = dataclasses.replace(data, is_query=np.arange(200) < 30)
    parts = split_parts(Cell("CVH", 16, 3, SplitSetting(None, 60)), marked)
    assert sorted(map(int, parts.query.ids)) == list(range(30))


@pytest.mark.parametrize("num_validation", [0, 50])
def test_official_training_set_is_taken(data, num_validation):
    rows = np.arange(200)
    marked = dataclasses.replace(data, is_query=rows < 30, is_train=rows >= 150)
    facts = DataFacts("pairs.npz", "", 200, num_official_queries=30, num_official_train=50)
    setting = facts.split(num_train=200, num_validation=num_validation)
    parts = split_parts(Cell("CVH", 16, 3, setting), marked)
    assert sorted(map(int, parts.train.ids)) == list(range(150, 200))
    assert len(parts.database) == 170 - num_validation


def test_validation_pairs_are_neither_trained_on_nor_searched(data):
    plain = split_parts(Cell("CVH", 16, 3, SplitSetting(25, 60)), data)
    parts = split_parts(Cell("CVH", 16, 3, SplitSetting(25, 60, 10)), data)
    assert len(parts.database) == len(plain.database) - 10
    aside = set(plain.database.ids) - set(parts.database.ids)
    assert len(aside) == 10
    assert not aside & (set(parts.train.ids) | set(parts.query.ids))
    assert len(parts.train) == 60


@pytest.mark.parametrize("official", [False, True])
def test_validation_pairs_take_the_place_of_the_queries(data, official):
    rows = np.arange(200)
    if official:
        data = dataclasses.replace(data, is_query=rows < 25, is_train=rows >= 130)
    queries = None if official else 25
    aside = split_parts(Cell("CVH", 16, 3, SplitSetting(queries, 60, 10)), data)
    parts = split_parts(Cell("CVH", 16, 3, SplitSetting(queries, 60, 10, "validation")), data)
    for name in ("train", "database"):
        np.testing.assert_array_equal(getattr(parts, name).ids, getattr(aside, name).ids)
    assert len(parts.query) == 10
    assert not set(parts.query.ids) & (set(aside.query.ids) | set(parts.database.ids))


def test_baseline_is_measured_as_by_hand(data):
    cell = Cell("CVH", 16, 1, SplitSetting(25, 60))
    parts = split_parts(cell, data)
    hasher = CVH(16, seed=1).fit(parts.train.image, parts.train.text)
    coded = [
        CodedItems(hasher.hash_images(part.image), hasher.hash_texts(part.text), part.labels)
        for part in (parts.query, parts.database)
    ]
    direct = evaluate_retrieval(*coded, seed=1)
    metrics = measure(cell, data)["metrics"]
    assert {key: metrics[key] for key in direct} == direct
    assert 0 <= metrics["code_statistics"]["image"]["correlation_mse"] <= 1


def test_real_valued_reference_beats_chance(data):
    metrics = measure(Cell("CCA, real-valued", 16, 0, SplitSetting(25, 100)), data)["metrics"]
    baseline = measure(Cell("Random", 16, 0, SplitSetting(25, 100)), data)["metrics"]
    assert metrics["map_at_1000"]["image_to_text"] > baseline["chance"] + 0.1


def test_unknown_method_is_refused(data):
    with pytest.raises(ValueError, match=r"`method` must be one of CMIMH, .*Received: method='XYZ'"):
        measure(Cell("XYZ", 16, 0, SplitSetting(25, 60)), data)


def test_measures_are_those_of_the_training_command():
    data = make_synthetic(150, seed=0)
    config = override(get_preset("smoke"), {"training.epochs": 2, "seed": 1})
    cell = Cell("CMIMH", 16, 1, SplitSetting(20, 100), config, rerank="asymmetric")
    result = measure(cell, data)
    parts = split_parts(cell, data)
    model = train_model(parts.train, config).model
    direct = evaluate_model(model, parts.query, parts.database, seed=1, rerank="asymmetric")
    assert {key: result["metrics"][key] for key in direct} == direct
    for modality in ("image", "text"):
        assert np.isfinite(result["metrics"]["probed_total_correlation"][modality])
        assert sum(result["probs_histogram"][modality]) == pytest.approx(1.0)
    assert result["training"]["last_epoch"]["epoch"] == 2


def test_cell_of_cmimh_needs_a_configuration():
    with pytest.raises(ValueError, match=r"`config` must be set in a cell of CMIMH"):
        measure(Cell("CMIMH", 16, 0, SplitSetting(20, 50)), make_synthetic(100, seed=0))
