"""The configuration and the pairs of Trainer and Tuner, and the folders that survive an interrupted run."""

from types import SimpleNamespace

import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data import PairedData
from pipeline.trainer import _search_folder, _training_folder, training_config, training_pairs_first


def test_scaling_is_left_to_transform_and_the_rest_is_kept():
    config = get_preset("smoke")
    trained = training_config(config.to_dict(), None)
    assert trained.network.input_norm is None
    assert trained.loss == config.loss
    assert trained.neighbourhood == config.neighbourhood


def test_tuned_values_win():
    tuned = training_config(get_preset("smoke").to_dict(), {"values": {"loss.mutual_information_weight": 7.5}})
    assert tuned.loss.mutual_information_weight == 7.5


def test_unknown_tuned_value_is_refused():
    with pytest.raises(ValueError, match=r"Nearest: loss.balance_weight"):
        training_config(get_preset("smoke").to_dict(), {"values": {"loss.balanc_weight": 1}})


def test_same_configuration_and_data_have_the_same_folder(tmp_path):
    config, pairs = get_preset("smoke"), PairedData(np.eye(4), np.eye(4))
    fn_args = SimpleNamespace(custom_config={"checkpoint_root": str(tmp_path)}, model_run_dir="new")
    folder = _training_folder(fn_args, config, pairs)
    assert folder == _training_folder(fn_args, config, pairs)
    assert folder != _training_folder(fn_args, get_preset("default"), pairs)
    assert folder != _training_folder(fn_args, config, PairedData(2 * np.eye(4), np.eye(4)))


def test_old_trainings_are_removed(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    fn_args = SimpleNamespace(custom_config={"checkpoint_root": str(tmp_path)}, model_run_dir="new")
    _training_folder(fn_args, get_preset("smoke"), PairedData(np.eye(4), np.eye(4)))
    assert len(list(tmp_path.iterdir())) == 1


def test_corrected_labels_have_a_search_of_their_own():
    features, labels = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.uint8)

    def folder(labels, num_train):
        return _search_folder("tuning", get_preset("smoke"), PairedData(features, features, labels=labels), num_train)

    assert folder(labels, 3) == folder(labels.copy(), 3)
    assert len({folder(labels, 3), folder(labels[::-1], 3), folder(labels, 2)}) == 3


def test_training_pairs_come_first_in_their_order():
    features = np.arange(1, 11, dtype=np.float32).reshape(5, 2)
    database = PairedData(features, features, ids=np.array(["a", "b", "c", "d", "e"]))
    pool = training_pairs_first(database.take(np.array([3, 1])), database)
    assert pool.ids.tolist() == ["d", "b", "a", "c", "e"]
    np.testing.assert_array_equal(pool.image[0], features[3])
