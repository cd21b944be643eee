"""One trial with real, tiny trainings."""

import dataclasses
import io

import keras_tuner
import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.overrides import override
from cmimh_tf.training.divergence import TrainingDiverged
from tuner.criteria import LABEL_FREE_CRITERIA
from tuner.hypermodel import WeightHyperModel
from tuner.search_folder import SearchFolder
from tuner.search_space import make_space
from tuner.weight_search import WeightSearch

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated, (use|get):DeprecationWarning")
TINY = override(
    get_preset("smoke"),
    {
        "network.hidden_units": [32],
        "network.critic_units": [16],
        "network.critic_embedding_units": 16,
        "training.epochs": 10,
        "training.batch_size": 32,
    },
)


@pytest.fixture(scope="module")
def pool():
    return make_synthetic(300, seed=0, image_dim=16, text_dim=12)


def test_a_trial_is_shorter_in_all_that_depends_on_its_length(pool):
    hypermodel = WeightHyperModel(make_space(TINY), pool, 200, trial_share=0.5)
    values = make_space(TINY).hyperparameters().values
    short = hypermodel.trial_config(values)
    # 5 epochs of 160 pairs in batches of 32 against 10 epochs of 200: 25 of 60 steps, and so of the 20 of the warm-up.
    assert (short.training.epochs, short.loss.modality_gap_warmup_steps) == (5, 8)
    assert dataclasses.replace(short, training=TINY.training, loss=TINY.loss) == TINY


def test_criteria_are_means_over_the_folds_and_the_cost_is_their_sum(pool):
    hypermodel = WeightHyperModel(make_space(TINY), pool, 200, folds=2, trial_share=0.2)
    hp = make_space(TINY).hyperparameters()
    metrics = hypermodel.fit(hp)
    assert {"val_map", *LABEL_FREE_CRITERIA} < set(metrics)
    # Two folds, each of 2 epochs with 3 batches of 32 out of 100 pairs.
    assert (metrics["steps"], metrics["full_steps"]) == (12.0, 60.0)
    assert metrics["seconds"] >= metrics["training_seconds"] > 0


def test_same_seed_same_criteria(pool):
    space = make_space(TINY)
    first, again = (WeightHyperModel(space, pool, 200, trial_share=0.2).fit(space.hyperparameters()) for _ in range(2))
    assert [first[name] for name in LABEL_FREE_CRITERIA] == [again[name] for name in LABEL_FREE_CRITERIA]


def test_built_model_can_be_trained_by_any_tuner(pool):
    space = make_space(TINY)
    model = WeightHyperModel(space, pool, 200).build(space.hyperparameters())
    assert model.built
    assert model.hash_images(pool.image).shape == (300, 2)


def test_a_trial_killed_before_its_result_is_known_trains_nothing_again(pool, tmp_path):
    space = make_space(TINY)
    options = {"folds": 2, "trial_share": 0.1, "training_root": tmp_path / "training"}
    hypermodel = WeightHyperModel(space, pool, 200, **options)
    first = hypermodel.fit(space.hyperparameters())
    again = WeightHyperModel(space, pool, 200, **options).fit(space.hyperparameters())
    assert (first["steps"] > 0, again["steps"]) == (True, 0)
    assert [first[name] for name in LABEL_FREE_CRITERIA] == [again[name] for name in LABEL_FREE_CRITERIA]
    hypermodel.forget(space.hyperparameters().values)
    assert list((tmp_path / "training").iterdir()) == []


def test_halved_training_goes_on_from_its_checkpoint(pool, tmp_path):
    space = make_space(TINY)
    options = {"trial_share": 0.4, "training_root": tmp_path, "keep_checkpoints": True}
    hypermodel = WeightHyperModel(space, pool, 200, **options)
    short = hypermodel.fit(space.hyperparameters(), epochs=2)
    whole = hypermodel.fit(space.hyperparameters(), epochs=4)
    straight = WeightHyperModel(space, pool, 200, trial_share=0.4).fit(space.hyperparameters())
    assert (short["steps"], whole["steps"], straight["steps"]) == (10.0, 10.0, 20.0)
    assert [whole[name] for name in LABEL_FREE_CRITERIA] == [straight[name] for name in LABEL_FREE_CRITERIA]


def test_collapse_is_a_failure(pool):
    # Features without scale teach nothing.
    config = override(TINY, {"network.input_norm": 1e-6})
    space = make_space(config)
    hypermodel = WeightHyperModel(space, pool, 200, trial_share=1.0)
    with pytest.raises(keras_tuner.errors.FailedTrialError, match=r"collapse: "):
        hypermodel.fit(space.hyperparameters())


def test_divergence_is_a_failure(pool):
    config = override(TINY, {"optimizer.encoder_rate": 1e30, "optimizer.gradient_clip_norm": None})
    space = make_space(config)
    with pytest.raises(TrainingDiverged, match="is not finite"):
        WeightHyperModel(space, pool, 200, trial_share=0.2).fit(space.hyperparameters())


def test_share_must_be_a_share(pool):
    with pytest.raises(ValueError, match=r"`trial_share` must be in \(0, 1\]. Received: trial_share=0."):
        WeightHyperModel(make_space(TINY), pool, 200, trial_share=0)


def test_planted_optimum_is_found(pool, tmp_path, capsys):
    """The preset hardly learns: of its rate, a hundredth of that and the hundredfold, the last must win."""
    config = override(TINY, {"optimizer.encoder_rate": 1e-4, "optimizer.schedule": "constant"})
    space = make_space(config, weights=["balance"], extras=["optimizer.encoder_rate=1e-6:1e-2"], grid_points=3)
    space = dataclasses.replace(space, dimensions=space.dimensions[1:])
    search = WeightSearch(
        SearchFolder(tmp_path), space, pool, 200, algorithm="grid", trial_share=1.0, data_name="synthetic"
    )
    screen = io.StringIO()
    search.begin(screen)
    search.run(1, [])
    assert search.conclude(screen) == 0
    result = search.folder.finished(3)
    assert result["best"] == {"optimizer.encoder_rate": 0.01}
    assert result["objective"] == "val_map"
    assert result["best_value"] > result["preset_value"]
    assert np.isclose(result["best_value"], max(r.metrics["val_map"] for r in search.records()))
