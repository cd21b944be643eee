import io
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf import stored_rows
from cmimh_tf.checksums import DamagedFile
from cmimh_tf.command_line import load_data
from cmimh_tf.config import get_preset
from cmimh_tf.data.readers.tfrecord import make_example
from cmimh_tf.data.splits import split_data
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.overrides import override
from cmimh_tf.training import callbacks
from cmimh_tf.training.callbacks import TrainingDiverged, TrainingProgress, pair_score
from cmimh_tf.training.run_folder import load_model
from cmimh_tf.training.trainer import train_model


@pytest.fixture(scope="module")
def pairs():
    return make_synthetic(300, seed=0)


def smoke(**values):
    return override(get_preset("smoke"), {key.replace("__", "."): value for key, value in values.items()})


def train(pairs, config, out=None, **options):
    return train_model(pairs, config, out, progress=io.StringIO(), **options)


class StopAfter:
    """Stands for a kill: leaves `fit` by an exception in the middle of an epoch."""

    def __new__(cls, epoch, batch):
        class Callback(keras.callbacks.Callback):
            now = 0

            def on_epoch_begin(self, current, logs=None):
                self.now = current

            def on_train_batch_end(self, current, logs=None):
                if self.now == epoch and current == batch:
                    raise KeyboardInterrupt

        return Callback()


def test_learns_pairs_that_were_not_trained_on(pairs):
    trained = train(pairs, smoke(training__epochs=30))
    unseen = make_synthetic(500, seed=0).take(np.arange(300, 500))
    score = pair_score(trained.model.hash_images(unseen.image), trained.model.hash_texts(unseen.text))
    assert score > 0.75
    assert not [problem for problem in trained.problems if problem.startswith("collapse")]
    assert [row["epoch"] for row in trained.history] == list(range(1, 31))


def test_same_seed_gives_the_same_codes_and_another_seed_others(pairs):
    codes = [train(pairs, smoke(seed=seed, training__epochs=2)).model.hash_images(pairs.image) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(codes[0], codes[1])
    assert (codes[0] != codes[2]).any()


@pytest.mark.parametrize("validation_share", [0.0, 0.2])
def test_a_killed_run_resumes_to_the_same_weights(pairs, tmp_path, validation_share):
    config = smoke(training__epochs=4, training__validation_share=validation_share)
    unbroken = train(pairs, config, tmp_path / "unbroken")
    with pytest.raises(KeyboardInterrupt):
        train(pairs, config, tmp_path / "broken", callbacks=[StopAfter(epoch=2, batch=1)])
    resumed = train(pairs, config, tmp_path / "broken")
    for expected, found in zip(unbroken.model.get_weights(), resumed.model.get_weights(), strict=True):
        np.testing.assert_array_equal(expected, found)
    assert resumed.history == unbroken.history


@pytest.fixture
def shards(pairs, tmp_path):
    """The pairs as `cmimh_tf.features` writes them, in two files."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard, rows in enumerate(np.array_split(np.arange(len(pairs)), 2)):
        with tf.io.TFRecordWriter(str(folder / f"pairs-{shard:05d}-of-00002.tfrecord")) as file:
            for row in rows:
                example = {"id": str(row), "image": pairs.image[row], "text": pairs.text[row]}
                file.write(make_example({**example, "labels": pairs.labels[row].astype(np.int64)}).SerializeToString())
    return str(folder)


@pytest.mark.parametrize("landmarks", [50_000, 100])
def test_shards_above_the_limit_train_to_the_same_weights(shards, landmarks, tmp_path, monkeypatch):
    config = smoke(training__epochs=3, training__validation_share=0.2, neighbourhood__landmarks=landmarks)
    in_memory = load_data(shards, 0, tmp_path / "vectors")
    monkeypatch.setattr(stored_rows, "IN_MEMORY_BYTES", 1000)
    in_files = load_data(shards, 0, tmp_path / "vectors")
    assert isinstance(in_memory.image, np.ndarray)
    assert isinstance(in_files.image, stored_rows.StoredRows)
    assert in_files.fingerprint() == in_memory.fingerprint()
    rows = split_data(in_memory, seed=0).train
    expected = train(in_memory.take(rows), config)
    with pytest.raises(KeyboardInterrupt):
        train(in_files.take(rows), config, tmp_path / "run", callbacks=[StopAfter(epoch=1, batch=1)])
    assert (tmp_path / "run" / "checkpoints" / "neighbourhood" / "coordinates").exists()
    found = train(load_data(shards, 0, tmp_path / "vectors").take(rows), config, tmp_path / "run")
    for one, other in zip(expected.model.get_weights(), found.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.history == expected.history
    assert not (tmp_path / "run" / "checkpoints" / "neighbourhood").exists()


def test_a_finished_run_is_not_trained_again(pairs, tmp_path):
    config = smoke(training__epochs=2)
    first = train(pairs, config, tmp_path)
    again = train(pairs, config, tmp_path, callbacks=[StopAfter(epoch=0, batch=0), StopAfter(epoch=1, batch=0)])
    np.testing.assert_array_equal(first.model.hash_texts(pairs.text), again.model.hash_texts(pairs.text))


def test_early_stopping_waits_for_a_better_epoch_no_longer_than_its_patience(pairs, tmp_path):
    # With a rate of 0 nothing improves after the first epoch.
    rates = {f"optimizer__{group}_rate": 0.0 for group in ("encoder", "decoder", "critic", "discriminator")}
    trained = train(
        pairs, smoke(training__epochs=20, training__validation_share=0.2, training__patience=3, **rates), tmp_path
    )
    assert len(trained.history) == 4
    assert all("validation_score" in row for row in trained.history)


def test_early_stopping_ends_with_the_best_epochs_weights(pairs, tmp_path):
    class KeepThenRuin(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.weights = []

        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 3:
                self.model.set_weights([np.zeros_like(weights) for weights in self.model.get_weights()])

        def on_epoch_end(self, epoch, logs=None):
            self.weights.append(self.model.get_weights())

    keep = KeepThenRuin()
    config = smoke(training__epochs=4, training__validation_share=0.2, training__patience=4)
    trained = train(pairs, config, tmp_path, callbacks=[keep])
    best = int(np.argmax([row["validation_score"] for row in trained.history]))
    assert best < 3
    for expected, found in zip(keep.weights[best], trained.model.get_weights(), strict=True):
        np.testing.assert_array_equal(expected, found)


def test_nan_stops_the_run_with_step_and_term(pairs, tmp_path):
    config = smoke(optimizer__encoder_rate=1e30, optimizer__gradient_clip_norm=None, training__epochs=3)
    with pytest.raises(TrainingDiverged, match=r"diverged at step \d+ \(epoch 1\): .* is not finite") as error:
        train(pairs, config, tmp_path)
    assert "There is no earlier checkpoint." in str(error.value)


def test_a_training_of_many_epochs_resumes_from_the_last_of_few_checkpoints(pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(callbacks, "_MOST_REPORTS", 2)
    config = smoke(training__epochs=6)
    expected = train(pairs, config)
    with pytest.raises(KeyboardInterrupt):
        train(pairs, config, tmp_path, callbacks=[StopAfter(epoch=4, batch=1)])
    assert [path.name for path in (tmp_path / "checkpoints").glob("*.index")] == ["ckpt-3.index"]
    found = train(pairs, config, tmp_path)
    for one, other in zip(expected.model.get_weights(), found.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    # The weights are equal; sums of losses may differ in the last digit on a busy machine.
    for one, other in zip(expected.history, found.history, strict=True):
        assert other == pytest.approx(one, rel=1e-5)


def test_a_checkpoint_that_was_cut_is_refused_by_name(pairs, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(pairs, smoke(training__epochs=3), tmp_path, callbacks=[StopAfter(epoch=1, batch=1)])
    (weights,) = (tmp_path / "checkpoints").glob("*.data*")
    size = weights.stat().st_size
    for kept in (size - 1, size - 1000, size // 2, 0):
        os.truncate(weights, kept)
        with pytest.raises(DamagedFile, match=r"ckpt-1 does not fit this version of the model or is damaged"):
            train(pairs, smoke(training__epochs=3), tmp_path)


def test_a_damaged_list_of_checkpoints_is_refused_by_name(pairs, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(pairs, smoke(training__epochs=3), tmp_path, callbacks=[StopAfter(epoch=1, batch=1)])
    with (tmp_path / "checkpoints" / "checkpoint").open("ab") as file:
        file.write(b"\xd8\x01")
    with pytest.raises(DamagedFile, match=r"checkpoints/checkpoint does not fit this version .*is damaged"):
        train(pairs, smoke(training__epochs=3), tmp_path)


@pytest.mark.parametrize("changed", ["configuration", "pairs"])
def test_checkpoints_of_another_training_are_refused(changed, pairs, tmp_path):
    first = train(pairs, smoke(training__epochs=1), tmp_path)
    config = smoke(training__epochs=1, seed=7) if changed == "configuration" else smoke(training__epochs=1)
    others = make_synthetic(300, seed=1) if changed == "pairs" else pairs
    with pytest.raises(ValueError, match=r"holds another run: `(config.seed|train_fingerprint)` is"):
        train(others, config, tmp_path)
    again = train(pairs, smoke(training__epochs=1), tmp_path)
    np.testing.assert_array_equal(first.model.hash_texts(pairs.text), again.model.hash_texts(pairs.text))
    (tmp_path / "checkpoints" / "training.json").unlink()
    with pytest.raises(ValueError, match=r"must have a training.json beside its checkpoints"):
        train(pairs, smoke(training__epochs=1), tmp_path)


def test_problems_are_reported_again_when_a_finished_training_is_taken_up(pairs, tmp_path):
    # Inputs this small leave every probability at a half.
    config = smoke(training__epochs=1, network__input_norm=1e-6)
    first = train(pairs, config, tmp_path)
    assert first.problems
    assert train(pairs, config, tmp_path).problems == first.problems


def test_too_few_pairs_are_refused(pairs):
    with pytest.raises(ValueError, match="`train` must have at least 2 pairs"):
        train(pairs.take([0]), smoke())


def test_missing_and_foreign_models_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder of a finished run"):
        load_model(tmp_path)
    (tmp_path / "model.keras").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="cannot be read as a model"):
        load_model(tmp_path)


@pytest.mark.parametrize(("epochs", "lines"), [(7, 7), (120, 40), (121, 41)])
def test_progress_of_many_epochs_has_few_lines(epochs, lines):
    stream = io.StringIO()
    progress = TrainingProgress(epochs, 1, stream)
    for epoch in range(epochs):
        progress.on_epoch_begin(epoch)
        progress.on_epoch_end(epoch, {"loss": 1.0})
    written = stream.getvalue().splitlines()
    assert len(written) == lines
    assert written[-1].startswith(f"epoch {epochs}/{epochs}")
