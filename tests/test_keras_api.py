"""CMIMH behaves as Keras users expect: compile, fit, evaluate, predict, save and load."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import cmimh_tf
from cmimh_tf import CMIMH, get_preset, prepare_dataset
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.training.neighbourhood import find_neighbourhood, held_out_coordinates
from cmimh_tf.training.trainer import train_model

PAIRS = make_synthetic(192, seed=0)
X = {"image": PAIRS.image, "text": PAIRS.text}


def smoke(**options):
    model = CMIMH.from_preset("smoke", training__batch_size=64, **options)
    model.compile()
    return model


def assert_equal_weights(first, second):
    for expected, found in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(expected, found)


class StopAfter(keras.callbacks.Callback):
    def __init__(self, epochs):
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = epoch + 1 == self.epochs


@pytest.fixture(scope="module")
def trained():
    model = smoke()
    model.fit(X, epochs=3, verbose=0)
    return model


def test_public_parts_can_be_imported_from_the_top():
    from cmimh_tf import codes, layers, losses, metrics, ops, optimizers, terms

    assert all(module.__doc__ for module in (codes, layers, losses, metrics, ops, optimizers, terms))
    assert all(hasattr(cmimh_tf, name) for name in cmimh_tf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = cmimh_tf.nonsense


def test_widths_scaling_and_neighbourhoods_come_from_the_data(trained):
    assert (trained.image_units, trained.text_units) == (PAIRS.image.shape[1], PAIRS.text.shape[1])
    scaled = trained.scalers["image"](PAIRS.image).numpy()
    assert np.sqrt((scaled**2).sum(axis=1).mean()) == pytest.approx(10.0, rel=1e-4)
    alone = smoke(neighbourhood__own_share=1.0)
    alone.fit(X, epochs=3, verbose=0)
    # Coordinates of the pair alone, without its neighbours: other weights.
    assert (
        alone.encoders["image"].denses[0].kernel.numpy() != trained.encoders["image"].denses[0].kernel.numpy()
    ).any()


def test_fit_on_arrays_and_train_model_end_in_the_same_weights(trained, tmp_path):
    run = train_model(PAIRS, CMIMH.from_preset("smoke", training__batch_size=64, training__epochs=3).config, tmp_path)
    assert_equal_weights(trained, run.model)
    assert_equal_weights(trained, cmimh_tf.load_model(tmp_path))


def test_a_saved_model_continues_to_the_same_weights(trained, tmp_path):
    model = smoke()
    model.fit(X, epochs=3, callbacks=[StopAfter(1)], verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 3
    loaded.fit(X, epochs=3, initial_epoch=1, verbose=0)
    assert_equal_weights(trained, loaded)


def test_the_cosine_schedule_ends_with_the_last_epoch(trained):
    assert int(trained.optimizer.iterations) == 9
    assert float(trained.optimizer.learning_rate) == pytest.approx(0.0, abs=1e-9)
    rates = []
    model = smoke()
    record = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: rates.append(float(model.optimizer.learning_rate)))
    model.fit(X, epochs=2, callbacks=[record], verbose=0)
    np.testing.assert_allclose(rates, [0.005, 0.0], atol=1e-8)


@pytest.mark.parametrize(
    "optimizer",
    [
        "adam",
        keras.optimizers.RMSprop(1e-3),
        {group: keras.optimizers.Adam(1e-3) for group in ("encoder", "decoder", "critic", "discriminator")},
    ],
    ids=["name", "instance", "per-group"],
)
def test_any_keras_optimizer_trains_all_variables_and_is_saved(optimizer, tmp_path):
    model = CMIMH.from_preset("smoke", training__batch_size=64)
    model.compile(optimizer=optimizer)
    model.build({"image": PAIRS.image.shape, "text": PAIRS.text.shape})
    before = [variable.numpy() for variable in model.trainable_variables]
    model.fit(X, epochs=1, verbose=0)
    for old, variable in zip(before, model.trainable_variables, strict=True):
        assert (old != variable.numpy()).any(), variable.path
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    for expected, found in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(expected.numpy(), found.numpy())


def test_compile_config_round_trip_is_json(trained):
    config = json.loads(json.dumps(trained.get_compile_config()))
    again = CMIMH.from_config(trained.get_config())
    again.compile_from_config(config)
    assert again.get_compile_config() == trained.get_compile_config()
    assert CMIMH(code_length=32).get_compile_config() == {}


@pytest.mark.parametrize("argument", [{"loss": "mse"}, {"metrics": ["accuracy"]}])
def test_compile_accepts_neither_losses_nor_metrics(argument):
    with pytest.raises(ValueError, match=f"`{next(iter(argument))}` must not be given"):
        CMIMH(code_length=32).compile(**argument)


@pytest.mark.parametrize("epochs", [0, -1, 1.5, True])
def test_wrong_epochs_are_named(epochs):
    with pytest.raises(ValueError, match=rf"`epochs` must be a positive integer. Received: epochs={epochs}"):
        smoke().fit(X, epochs=epochs)


def test_validation_and_evaluate_report_the_loss_and_every_term():
    model = smoke()
    history = model.fit(X, epochs=1, validation_data=X, verbose=0).history
    terms = {"loss", *(term.name for term in model.terms), "discriminator"}
    assert set(history) == terms | {f"val_{name}" for name in terms}
    # Without the training pairs, `evaluate` knows no coordinates.
    found = model.evaluate(X, return_dict=True, verbose=0)
    assert set(found) == terms - {"neighbourhood"}
    assert found["loss"] == pytest.approx(history["val_loss"][-1] - history["val_neighbourhood"][-1], rel=1e-5)
    coordinates = held_out_coordinates(*X.values(), *X.values(), model.config.neighbourhood)
    found = model.evaluate({**X, **coordinates}, return_dict=True, verbose=0)
    assert found == pytest.approx({name: history[f"val_{name}"][-1] for name in terms}, rel=1e-6)
    split = smoke().fit(X, epochs=1, validation_split=0.25, verbose=0).history
    assert set(split) == terms | {f"val_{name}" for name in terms}


def test_held_out_pairs_are_measured_by_the_objective_or_refused():
    train, held_out = ({name: values[rows] for name, values in X.items()} for rows in (slice(128), slice(128, None)))
    model = CMIMH(16, config={"network": {"hidden_units": [32], "decoder_units": [32]}})
    model.compile()
    history = model.fit(train, batch_size=32, epochs=3, validation_data=(held_out, None), verbose=0).history
    assert set(history) == {"loss", "neighbourhood", "val_loss", "val_neighbourhood"}
    # It learns what held-out pairs have in common with those that it saw.
    assert 0 < history["val_loss"][-1] < history["val_loss"][0]
    with pytest.raises(ValueError, match=r"`x` must have coordinates among the training pairs.*Received: image, text"):
        model.evaluate(held_out)
    dataset = tf.data.Dataset.from_tensor_slices(held_out).batch(32)
    with pytest.raises(ValueError, match=r"`validation_data` must have coordinates.*Received: image, text"):
        model.fit(train, epochs=1, validation_data=dataset)
    narrow = {**held_out, "text": held_out["text"][:, 1:]}
    with pytest.raises(ValueError, match=r"`text` must have shape \[rows, .*\] in `validation_data`, as in `x`"):
        model.fit(train, epochs=1, validation_data=narrow)


def test_validation_split_holds_out_the_last_rows():
    model, other = smoke(), smoke()
    model.fit(X, epochs=1, validation_split=1 / 3, verbose=0)
    columns = {**X, **find_neighbourhood(X["image"], X["text"], model.config.neighbourhood)}
    other.fit({name: values[:128] for name, values in columns.items()}, epochs=1, verbose=0)
    assert_equal_weights(model, other)


def test_predict_gives_probabilities_of_the_given_modalities(trained):
    both = trained.predict(X, verbose=0)
    assert {name: values.shape for name, values in both.items()} == {
        "image_probs": (192, 16),
        "text_probs": (192, 16),
    }
    only = trained.predict({"image": PAIRS.image}, verbose=0)
    assert set(only) == {"image_probs"}
    bits = np.unpackbits(trained.hash_images(PAIRS.image), axis=1, bitorder="little")
    np.testing.assert_array_equal(bits, both["image_probs"] >= 0.5)


@pytest.mark.parametrize("batched", [False, True])
def test_a_prepared_dataset_trains_as_the_arrays_do(batched):
    from_arrays, from_dataset = smoke(), smoke()
    from_arrays.fit(X, epochs=2, shuffle=False, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices(X)
    # Batches of a fixed size give the graph the shapes that arrays have; other shapes round differently.
    batches = {"batch_size": 64, "drop_remainder": True}
    prepared = prepare_dataset(dataset.batch(**batches) if batched else dataset, from_dataset)
    from_dataset.fit(prepared if batched else prepared.batch(**batches), epochs=2, verbose=0)
    assert_equal_weights(from_arrays, from_dataset)


def test_without_epochs_a_training_is_as_long_as_configured():
    model = smoke(training__epochs=None, training__steps=8)
    assert len(model.fit(X, verbose=0).history["loss"]) == 3
    assert len(model.fit(X, batch_size=32, verbose=0).history["loss"]) == 1
    prepared = prepare_dataset(tf.data.Dataset.from_tensor_slices(X).batch(64), model)
    assert len(model.fit(prepared, verbose=0).history["loss"]) == 3
    assert len(smoke(training__epochs=2).fit(X, verbose=0).history["loss"]) == 2


def test_an_unprepared_dataset_is_refused_with_the_cure():
    batches = tf.data.Dataset.from_tensor_slices(X).batch(64)
    with pytest.raises(ValueError, match=r"dataset = cmimh_tf\.prepare_dataset\(dataset, model\)"):
        smoke().fit(batches)
    model = smoke()
    prepared = prepare_dataset(batches, model)
    with pytest.raises(ValueError, match="`steps_per_epoch` must be given"):
        model.fit(prepared.filter(lambda batch: True))
    with pytest.raises(ValueError, match="`x` must be a dataset of batches"):
        model.fit(tf.data.Dataset.from_tensor_slices(X))
    with pytest.raises(ValueError, match="`batch_size` must be None for a dataset"):
        model.fit(prepared, batch_size=32)


def test_the_paper_preset_trains_on_a_dataset_once_it_is_scaled():
    model = CMIMH.from_preset("mscoco", network__hidden_units=(8,), network__critic_units=(8,), training__batch_size=64)
    model.compile()
    model.adapt(PAIRS.image, PAIRS.text)
    history = model.fit(tf.data.Dataset.from_tensor_slices(X).batch(64), epochs=1, verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"image": PAIRS.image}, "must have the keys image and text. Received: image"),
        ({"image": PAIRS.image, "text": PAIRS.text[:5]}, "the same number of rows.*Received: 192 and 5 rows"),
        ({"image": PAIRS.image[0], "text": PAIRS.text}, r"`image` must be numbers of shape \[pairs, units\]"),
        ({"image": np.full((4, 2), np.nan), "text": np.ones((4, 2))}, "`image` must be finite. Received: row 0"),
    ],
)
def test_bad_arrays_are_named(x, message):
    with pytest.raises(ValueError, match=message):
        smoke().fit(x)


def test_misuse_is_explained(trained):
    with pytest.raises(ValueError, match="`y` must be None"):
        smoke().fit(X, np.ones(192))
    with pytest.raises(ValueError, match=r"Call `compile\(\)`"):
        CMIMH.from_preset("smoke").fit(X)
    with pytest.raises(TypeError, match=r"`x` must be a dict of arrays or a tf\.data\.Dataset"):
        smoke().fit([1, 2])
    with pytest.raises(ValueError, match="must be trained, or its weights loaded"):
        CMIMH(code_length=16).hash_images(PAIRS.image)
    with pytest.raises(TypeError, match=r"Pass a configuration as `config=\.\.\.`"):
        CMIMH(get_preset("smoke"))
    with pytest.raises(ValueError, match="`code_length` must be a positive multiple of 8"):
        CMIMH(code_length=12)


def test_code_length_and_seed_override_the_configuration():
    model = CMIMH.from_preset("mscoco", code_length=64, seed=3, loss__balance_weight=0.5)
    assert (model.config.code_length, model.config.seed, model.config.loss.weight("balance")) == (64, 3, 0.5)
    assert CMIMH(24, config={"seed": 5}).config.seed == 5


def test_held_out_terms_are_means_over_pairs_not_over_batches(trained):
    # 65 pairs are a batch of 64 and a single pair, which cannot be compared with others.
    one_batch, with_rest = (
        trained.evaluate(
            {name: values[:count] for name, values in X.items()}, batch_size=64, return_dict=True, verbose=0
        )
        for count in (64, 65)
    )
    assert with_rest == pytest.approx(one_batch)
    parts = [{name: values[rows] for name, values in X.items()} for rows in (slice(0, 64), slice(64, 96))]
    first, second = (trained.evaluate(part, batch_size=64, return_dict=True, verbose=0) for part in parts)
    both = {name: values[:96] for name, values in X.items()}
    together = trained.evaluate(both, batch_size=64, return_dict=True, verbose=0)
    for name in ("reconstruction", "mutual_information"):
        assert together[name] == pytest.approx((64 * first[name] + 32 * second[name]) / 96, rel=1e-4), name


@pytest.mark.parametrize("batch_size", [0, 1, -4, 16.0, True])
def test_a_wrong_batch_size_is_named(trained, batch_size):
    for run in (lambda: smoke().fit(X, batch_size=batch_size), lambda: trained.evaluate(X, batch_size=batch_size)):
        with pytest.raises(ValueError, match=rf"`batch_size` must be an integer of at least 2.*={batch_size}"):
            run()


@pytest.mark.parametrize("share", [-0.5, 1.0, 5])
def test_a_wrong_validation_split_is_named(share):
    with pytest.raises(ValueError, match=rf"`validation_split` must be at least 0 and below 1. Received: {share}"):
        smoke().fit(X, validation_split=share)


def test_a_dataset_cannot_be_split():
    model = smoke()
    dataset = prepare_dataset(tf.data.Dataset.from_tensor_slices(X).batch(64), model)
    with pytest.raises(ValueError, match=r"`validation_split` needs arrays.*Received: validation_split=0.3"):
        model.fit(dataset, validation_split=0.3)


def test_steps_on_single_batches_and_no_labels_anywhere():
    model = smoke(loss__neighbourhood_weight=0.0)
    model.build({name: values.shape for name, values in X.items()})
    assert np.isfinite(model.train_on_batch(X)).all()
    assert np.isfinite(model.test_on_batch(X)).all()
    for run in (model.evaluate, model.train_on_batch):
        with pytest.raises(ValueError, match=r"`y` and `sample_weight` must be None"):
            run(X, np.zeros(len(PAIRS)))
    for name in ("class_weight", "sample_weight"):
        with pytest.raises(ValueError, match=rf"`{name}` must be None"):
            model.fit(X, **{name: {0: 1.0}})


def test_wrong_inputs_are_named(trained):
    wide = {"image": np.zeros((64, 5), np.float32), "text": X["text"][:64]}
    wanted = rf"`image` must have shape \[rows, {PAIRS.image.shape[1]}\]\. Received: \(.*5\)"
    for run in (trained.fit, trained.evaluate, trained.predict):
        with pytest.raises(ValueError, match=wanted):
            run(wide, verbose=0)
    with pytest.raises(ValueError, match=r"`batch` must be a dict with 'image', 'text' or both. Received: \['img'\]"):
        trained.predict({"img": X["image"]}, verbose=0)
    with pytest.raises(ValueError, match=r"must be trained, or its weights loaded, before it can be evaluated"):
        smoke().evaluate(X)
