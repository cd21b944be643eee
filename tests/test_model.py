import keras
import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.config import get_preset
from cmimh_tf.losses import mutual_information
from cmimh_tf.model import CMIMH
from cmimh_tf.overrides import override
from cmimh_tf.training.neighbourhood import coordinate_units

IMAGE_UNITS, TEXT_UNITS, ROWS = 20, 12, 32
COORDINATES = coordinate_units(get_preset("smoke").neighbourhood)


def make_model(**values):
    config = override(get_preset("smoke"), {key.replace("__", "."): value for key, value in values.items()})
    model = CMIMH(config=config, image_units=IMAGE_UNITS, text_units=TEXT_UNITS)
    model.compile()
    return model


@pytest.fixture
def batch():
    generator = np.random.default_rng(0)
    shared = generator.normal(size=(ROWS, 8))
    return {
        "image": tf.constant(shared @ generator.normal(size=(8, IMAGE_UNITS)), tf.float32),
        "text": tf.constant(shared @ generator.normal(size=(8, TEXT_UNITS)), tf.float32),
        "coordinates": tf.constant(shared @ generator.normal(size=(8, COORDINATES)), tf.float32),
    }


def weights_of(layers):
    return [variable.numpy() for layer in layers for variable in layer.trainable_variables]


def test_every_trainable_variable_moves_in_one_step(batch):
    model = make_model()
    before = [variable.numpy() for variable in model.trainable_variables]
    model.train_step(batch)
    for old, variable in zip(before, model.trainable_variables, strict=True):
        assert (old != variable.numpy()).any(), variable.path


def test_each_group_has_its_own_optimiser_and_rate(batch):
    # With all but one rate at 0, only that group's variables move.
    for group in ("encoder", "decoder", "critic", "discriminator"):
        rates = {f"optimizer__{name}_rate": 0.0 for name in ("encoder", "decoder", "critic", "discriminator")}
        model = make_model(**{**rates, f"optimizer__{group}_rate": 0.01})
        groups = model.optimizer.groups
        before = {name: [v.numpy() for v in variables] for name, variables in groups.items()}
        model.train_step(batch)
        for name, variables in groups.items():
            moved = [(old != v.numpy()).any() for old, v in zip(before[name], variables, strict=True)]
            assert all(moved) if name == group else not any(moved)


def test_discriminator_loss_trains_only_the_discriminators(batch):
    # The encoders minimise the objective; the discriminators' own loss must not reach them through the optimizer.
    model, without = make_model(), make_model()
    for discriminator in without.discriminators.values():
        discriminator.trainable = False
    model.train_step(batch)
    without.optimizer.assign_groups(without.variable_groups())
    without.optimizer.built = False
    without.train_step(batch)
    for old, new in zip(weights_of(model.encoders.values()), weights_of(without.encoders.values()), strict=True):
        np.testing.assert_array_equal(old, new)


def test_shuffled_probs_pass_no_gradient_to_the_encoders(batch):
    model = make_model()
    with tf.GradientTape() as tape:
        tensors = model._discriminator_logits(
            {f"{name}_probs": tf.sigmoid(model._encode(name, batch[name])) for name in ("image", "text")},
            [tf.constant([1, 2]), tf.constant([3, 4])],
        )
        shuffled = tf.reduce_sum(tensors["image_shuffled_logits"])
    kernel = model.encoders["image"].denses[0].kernel.value
    assert not np.any(tape.gradient(shuffled, kernel))


@pytest.mark.parametrize(
    ("weight", "missing_terms", "missing_layers"),
    [
        ("neighbourhood_weight", ["neighbourhood"], ["coordinate_decoder"]),
        ("reconstruction_weight", ["reconstruction"], ["cross_decoders"]),
        ("cross_reconstruction_weight", ["cross_reconstruction"], ["cross_decoders"]),
        ("mutual_information_weight", ["mutual_information"], ["critic"]),
        ("modality_gap_weight", ["modality_gap"], []),
        (
            "independence_weight",
            ["independence", "discriminator"],
            ["discriminators"],
        ),
        ("balance_weight", ["balance"], []),
    ],
)
def test_weight_zero_switches_a_term_and_its_network_off(batch, weight, missing_terms, missing_layers):
    full, without = make_model(), make_model(**{f"loss__{weight}": 0.0})
    names = set(full.train_step(batch))
    assert set(without.train_step(batch)) == names - set(missing_terms)
    assert not any(getattr(without, name) for name in missing_layers)


def test_decoders_exist_only_where_needed(batch):
    neither = make_model(loss__reconstruction_weight=0.0, loss__cross_reconstruction_weight=0.0)
    shared = make_model(loss__cross_decoders="shared")
    separate = make_model(loss__cross_decoders="separate")
    assert not neither.decoders
    assert not neither.cross_decoders
    assert (len(shared.decoders), len(shared.cross_decoders)) == (2, 0)
    assert (len(separate.decoders), len(separate.cross_decoders)) == (2, 2)
    first = separate.compute_losses(batch, training=False)
    # Only the networks of the cross term differ.
    again = shared.compute_losses(batch, training=False)
    assert first["reconstruction"].numpy() == again["reconstruction"].numpy()
    assert first["cross_reconstruction"].numpy() != again["cross_reconstruction"].numpy()


def test_objective_is_the_weighted_sum_written_out(batch):
    model = make_model(
        loss__mutual_information_weight=2.0,
        loss__modality_gap_weight=3.0,
        loss__independence_weight=0.5,
        loss__balance_weight=0.7,
        loss__cross_reconstruction_weight=0.2,
        loss__modality_gap_warmup_steps=0,
    )
    losses = model.compute_losses(batch, training=False)
    scale = 32 / 16
    expected = (
        losses["neighbourhood"]
        + losses["reconstruction"]
        + 0.2 * losses["cross_reconstruction"]
        - 2.0 * losses["mutual_information"]
        + scale * (3.0 * losses["modality_gap"] + 0.5 * losses["independence"] + 0.7 * losses["balance"])
    )
    assert model.objective(losses).numpy() == pytest.approx(expected.numpy(), rel=1e-5)


def test_modality_gap_weight_rises_with_the_steps(batch):
    model = make_model(loss__modality_gap_warmup_steps=4)
    losses = model.compute_losses(batch, training=False)
    objectives = []
    for step in (0, 2, 4, 9):
        model.step.assign(step)
        objectives.append(model.objective(losses).numpy())
    gap = 2.0 * model.config.loss.modality_gap_weight * losses["modality_gap"].numpy()
    np.testing.assert_allclose(np.array(objectives) - objectives[0], [0, gap / 2, gap, gap], rtol=1e-3)


def test_one_decoder_reconstructs_the_coordinates_from_both_codes(batch):
    model = make_model(loss__neighbourhood_weight=3.0)
    losses = model.compute_losses(batch, training=False)
    far = model.compute_losses({**batch, "coordinates": batch["coordinates"] + 100.0}, training=False)
    # Each of the two squared errors sums over the coordinates.
    assert far["neighbourhood"].numpy() > 2 * COORDINATES * 90.0**2
    assert far["reconstruction"].numpy() == losses["reconstruction"].numpy()
    other = model.objective({**losses, "neighbourhood": losses["neighbourhood"] + 1.0}) - model.objective(losses)
    assert other.numpy() == pytest.approx(3.0, rel=1e-3)


def test_without_coordinates_their_term_is_left_out(batch):
    model = make_model()
    with_them = model.compute_losses(batch, training=False)
    without = model.compute_losses({name: batch[name] for name in ("image", "text")}, training=False)
    assert set(with_them) - set(without) == {"neighbourhood"}
    expected = model.objective(with_them) - with_them["neighbourhood"]
    assert model.objective(without).numpy() == pytest.approx(expected.numpy(), rel=1e-4)


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("negatives", ["all", "shuffle"])
def test_critic_variants_train(batch, samples, negatives):
    model = make_model(loss__critic_inputs="codes", loss__critic_samples=samples, loss__critic_negatives=negatives)
    before = weights_of([model.critic, model.encoders["image"]])
    assert np.isfinite(model.train_step(batch)["mutual_information"].numpy())
    for old, new in zip(before, weights_of([model.critic, model.encoders["image"]]), strict=True):
        assert (old != new).any()


def test_signed_probs_enter_the_critic_as_twice_the_probs_minus_one(batch):
    model = make_model(loss__critic_inputs="signed_probs")
    outputs = model(batch)
    scores = model.critic(*(2.0 * outputs[f"{name}_probs"] - 1.0 for name in ("image", "text")))
    expected = mutual_information(scores[None], 1.0 - tf.eye(ROWS)).numpy()
    losses = model.compute_losses(batch, training=False)
    assert losses["mutual_information"].numpy() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("inputs", "values"), [("codes", [0.0, 1.0]), ("signed_codes", [-1.0, 1.0])])
def test_sampled_codes_enter_the_critic_in_the_range_asked_for(batch, monkeypatch, inputs, values):
    model = make_model(loss__critic_inputs=inputs)
    seen, call = [], model.critic.call
    monkeypatch.setattr(model.critic, "call", lambda *pair: seen.extend(pair) or call(*pair))
    model.compute_losses(batch, training=True)
    assert [np.unique(codes).tolist() for codes in seen] == [values, values]


def test_readings_of_the_paper_train_save_and_load(batch, tmp_path):
    model = make_model(
        loss__reconstruction_reduction="mean", loss__modality_gap_reduction="mean", network__critic_networks="shared",
        network__initializer="pytorch",
    )  # fmt: skip
    assert len(model.variable_groups()["critic"]) == 6
    before = [variable.numpy() for variable in model.trainable_variables]
    model.train_step(batch)
    for old, variable in zip(before, model.trainable_variables, strict=True):
        assert (old != variable.numpy()).any(), variable.path
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == model.config
    for old, new in zip(model.trainable_variables, loaded.trainable_variables, strict=True):
        np.testing.assert_array_equal(old.numpy(), new.numpy())
    losses, summed = (
        make_model(loss__reconstruction_reduction=reduction).compute_losses(batch, training=False)
        for reduction in ("mean", "sum")
    )
    assert losses["reconstruction"] < summed["reconstruction"] / TEXT_UNITS


def test_more_critic_samples_vary_less_between_steps(batch):
    def deviation(samples):
        model = make_model(loss__critic_inputs="codes", loss__critic_samples=samples)
        values = []
        for step in range(20):
            model.step.assign(step)
            values.append(model.compute_losses(batch, training=True)["mutual_information"].numpy())
        return np.std(values)

    assert deviation(20) < 0.5 * deviation(1)


def test_logits_are_clipped_and_the_clip_can_be_switched_off(batch):
    large = {"image": 1000.0 * batch["image"], "text": batch["text"]}
    assert np.abs(make_model().image_logits(large["image"])).max() == 5.0
    assert np.abs(make_model(network__logit_limit=None).image_logits(large["image"])).max() > 5.0


def test_gradients_are_clipped_by_their_joint_norm(batch):
    # Without momentum and decay, the encoders' and decoders' step is rate * clipped gradient.
    options = {
        "optimizer__momentum": 0.0,
        "optimizer__weight_decay": 0.0,
        "optimizer__gradient_clip_norm": 0.5,
    }
    rates = {f"optimizer__{name}_rate": 1.0 for name in ("encoder", "decoder", "critic")}
    model = make_model(**options, **rates)
    clipped = [v for name in ("encoder", "decoder", "critic") for v in model.optimizer.groups[name]]
    before = [v.numpy() for v in clipped]
    model.train_step(batch)
    norm = np.sqrt(sum(np.sum((old - v.numpy()) ** 2) for old, v in zip(before, clipped, strict=True)))
    assert norm == pytest.approx(0.5, rel=1e-3)


def test_test_step_reports_the_terms_of_a_training_step_and_changes_nothing(batch):
    model = make_model()
    before = model.get_weights()
    first, again = model.test_step(batch), model.compute_losses(batch, training=False)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert first["reconstruction"].numpy() == again["reconstruction"].numpy()
    assert set(model.train_step(batch)) == set(first)
    assert any((old != new).any() for old, new in zip(before, model.get_weights(), strict=True))


def test_same_seed_same_model_other_seed_other_model(batch):
    def trained(seed):
        model = make_model(seed=seed)
        for _ in range(3):
            model.train_step(batch)
        return model.get_weights()

    first, again, other = trained(1), trained(1), trained(2)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any((a != b).any() for a, b in zip(first, other, strict=True))


def test_saved_and_loaded_model_gives_the_same_bits(batch, tmp_path):
    model = make_model()
    model.adapt(batch["image"].numpy(), batch["text"].numpy())
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    image, text = batch["image"].numpy(), batch["text"].numpy()
    np.testing.assert_array_equal(loaded.hash_images(image), model.hash_images(image))
    np.testing.assert_array_equal(loaded.hash_texts(text), model.hash_texts(text))
    assert loaded.config == model.config
