"""The components and how they are connected."""

from cmimh_tf.config import get_preset
from pipeline.create_pipeline import PipelineOptions, create_pipeline


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
