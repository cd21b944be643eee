"""The search within the pipeline: where it stands, and what it is given."""

import numpy as np

from cmimh_tf.config import get_preset
from cmimh_tf.data import PairedData
from pipeline.dag import PipelineOptions, create_pipeline
from pipeline.weight_search import _folder, training_pairs_first


def components(**options):
    pipeline = create_pipeline("test", "root", "serving", PipelineOptions("emoji", get_preset("smoke"), **options))
    return {component.id: component for component in pipeline.components}


def test_tuner_hands_its_best_to_the_trainer():
    with_search = components(tune_trials=3)
    assert list(with_search).index("Tuner") + 1 == list(with_search).index("Trainer")
    handed = with_search["Trainer"].inputs["hyperparameters"]
    assert handed == with_search["Tuner"].outputs["best_hyperparameters"]


def test_no_tuner_unless_asked_for():
    without = components()
    assert "Tuner" not in without
    assert "hyperparameters" not in without["Trainer"].inputs


def test_corrected_labels_have_a_search_of_their_own():
    features, labels = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.uint8)

    def folder(labels, num_train):
        return _folder("tuning", get_preset("smoke"), PairedData(features, features, labels=labels), num_train)

    assert folder(labels, 3) == folder(labels.copy(), 3)
    assert len({folder(labels, 3), folder(labels[::-1], 3), folder(labels, 2)}) == 3


def test_training_pairs_come_first_in_their_order():
    features = np.arange(1, 11, dtype=np.float32).reshape(5, 2)
    database = PairedData(features, features, ids=np.array(["a", "b", "c", "d", "e"]))
    pool = training_pairs_first(database.take(np.array([3, 1])), database)
    assert pool.ids.tolist() == ["d", "b", "a", "c", "e"]
    np.testing.assert_array_equal(pool.image[0], features[3])
