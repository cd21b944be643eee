"""Folds of the training set, and trials with real, tiny trainings."""

import dataclasses
import io

import keras_tuner
import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.overrides import override
from cmimh_tf.training.callbacks import TrainingDiverged
from tuner.criteria import LABEL_FREE_CRITERIA
from tuner.hypermodel import WeightHyperModel, make_folds
from tuner.results import SearchFolder
from tuner.search import WeightSearch
from tuner.search_space import make_space

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


@pytest.mark.parametrize("folds", [1, 2, 5])
def test_held_out_pairs_are_in_neither_part(folds):
    for fold in make_folds(100, 40, folds=folds, seed=0):
        assert not np.intersect1d(fold.query, fold.database).size
        assert np.isin(fold.fit, fold.database).all()
        assert sorted([*fold.fit, *fold.query]) == list(range(40))
        assert sorted([*fold.database, *fold.query]) == list(range(100))


def test_folds_cover_the_training_set_once():
    held_out = np.concatenate([fold.query for fold in make_folds(100, 41, folds=3, seed=0)])
    assert sorted(held_out) == list(range(41))


def test_one_fold_holds_out_a_fifth():
    (fold,) = make_folds(5000, 5000, folds=1, seed=0)
    assert (len(fold.fit), len(fold.query)) == (4000, 1000)


def test_seed_decides():
    first, again, other = (make_folds(50, 50, folds=1, seed=seed)[0].query for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_large_databases_are_thinned():
    (fold,) = make_folds(50_000, 20_000, folds=1, seed=0)
    assert (len(fold.query), len(fold.database)) == (2_000, 20_000)
    assert not np.intersect1d(fold.query, fold.database).size


@pytest.mark.parametrize(("folds", "pairs"), [(0, 100), (1, 9), (30, 59)])
def test_too_few_pairs(folds, pairs):
    with pytest.raises(ValueError, match=rf"Received: folds={folds}, {pairs} training pairs."):
        make_folds(pairs, pairs, folds=folds, seed=0)


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
    assert {"val_map", *LABEL_FREE_CRITERIA} < set(first)
    # The cost is the sum over two folds, each of 1 epoch with 3 batches of 32 out of 100 pairs.
    assert (first["steps"], first["full_steps"]) == (6.0, 60.0)
    assert first["seconds"] >= first["training_seconds"] > 0
    again = WeightHyperModel(space, pool, 200, **options).fit(space.hyperparameters())
    assert again["steps"] == 0
    assert [first[name] for name in LABEL_FREE_CRITERIA] == [again[name] for name in LABEL_FREE_CRITERIA]
    hypermodel.forget(space.hyperparameters().values)
    assert list((tmp_path / "training").iterdir()) == []


def test_halved_training_resumes_and_ends_as_one_in_one_go(pool, tmp_path):
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
    assert search.finish(screen) == 0
    result = search.folder.finished(3)
    assert result["best"] == {"optimizer.encoder_rate": 0.01}
    assert result["objective"] == "val_map"
    assert result["best_value"] > result["preset_value"]
    assert np.isclose(result["best_value"], max(r.metrics["val_map"] for r in search.records()))
