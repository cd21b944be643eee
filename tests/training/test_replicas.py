"""Training on several devices: two logical CPUs, which must exist before TensorFlow starts, so in another process."""

import json
import subprocess
import sys
import textwrap

import pytest

SCRIPT = textwrap.dedent("""
    import json
    import io, sys
    import numpy as np
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    from cmimh_tf.config import get_preset
    from cmimh_tf.data.synthetic import make_synthetic
    from cmimh_tf.model import CMIMH
    from cmimh_tf.overrides import override
    from cmimh_tf.training.neighbourhood import find_neighbourhood
    from cmimh_tf.training.trainer import train_model

    pairs = make_synthetic(64, seed=0)
    columns = {"image": pairs.image, "text": pairs.text}
    RATE = 0.5
    # One for the process: a second would number its collective operations from the same start.
    STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    # Only the terms without samples: critic with in-batch negatives, modality gap, balance.
    def config(clip):
        rates = {f"optimizer.{group}_rate": RATE for group in ("encoder", "decoder", "critic")}
        return override(get_preset("smoke"), {
            "loss.reconstruction_weight": 0.0, "loss.cross_reconstruction_weight": 0.0, "loss.independence_weight": 0.0,
            "loss.modality_gap_warmup_steps": 0, "loss.balance_weight": 1.0, "network.input_noise": 0.0,
            "loss.neighbourhood_weight": 0.0,
            "optimizer.schedule": "constant", "optimizer.weight_decay": 0.0, "optimizer.gradient_clip_norm": clip,
            **rates,
        })

    def variables(model):
        return [v for group in model.variable_groups().values() for v in group]

    def gradients(model, rows):
        batch = {name: tf.constant(values[rows]) for name, values in columns.items()}
        with tf.GradientTape() as tape:
            loss = model.objective(model.compute_losses(batch, training=True))
        return [g.numpy() for g in tape.gradient(loss, [v.value for v in variables(model)])]

    def distance(left, right):
        return float(np.sqrt(sum(np.sum(np.square(a - b)) for a, b in zip(left, right))))

    def one_step(clip):
        with STRATEGY.scope():
            model = CMIMH(config=config(clip), image_units=pairs.image.shape[1], text_units=pairs.text.shape[1])
            model.compile()
        model.adapt(pairs.image, pairs.text)
        before = [v.numpy() for v in variables(model)]
        history = model.fit(columns, batch_size=64, epochs=1, shuffle=False, verbose=0)
        return model, [(old - v.numpy()) / RATE for old, v in zip(before, variables(model))], history

    single = CMIMH(config=config(None), image_units=pairs.image.shape[1], text_units=pairs.text.shape[1])
    single.adapt(pairs.image, pairs.text)
    halves = [gradients(single, slice(0, 32)), gradients(single, slice(32, 64))]
    mean = [(a + b) / 2 for a, b in zip(*halves)]
    model, update, history = one_step(None)
    norm = distance(mean, [0.0] * len(mean))
    results = {
        "norm": norm,
        "from_mean_of_halves": distance(update, mean) / norm,
        "from_whole_batch": distance(update, gradients(single, slice(0, 64))) / norm,
        "clipped_norm": distance(one_step(norm / 3)[1], [0.0] * len(mean)) / norm,
        "step": int(model.step.numpy()),
        "loss": history.history["loss"][0],
        "loss_of_halves": float(np.mean([
            single.objective(single.compute_losses(
                {n: tf.constant(v[rows]) for n, v in columns.items()}, training=True)).numpy()
            for rows in (slice(0, 32), slice(32, 64))])),
    }

    # The whole objective, with samples and checkpoints.
    full = override(get_preset("smoke"), {"training.batch_size": 32, "training.epochs": 2})
    with STRATEGY.scope():
        trained = train_model(pairs, full, sys.argv[1], progress=io.StringIO())
        again = train_model(pairs, full, progress=io.StringIO())
    copies = [v.value.values for v in trained.model.trainable_variables]
    results["replicas_agree"] = all(bool(tf.reduce_all(a == b)) for a, b in copies)
    results["is_repeatable"] = all(
        np.array_equal(a, b) for a, b in zip(trained.model.get_weights(), again.model.get_weights())
    )
    batch = {name: tf.constant(values[:32]) for name, values in columns.items()}

    coordinates = find_neighbourhood(pairs.image, pairs.text, full.neighbourhood)["coordinates"]
    batch["coordinates"] = tf.constant(coordinates[: len(batch["image"])])

    @tf.function
    def objectives():
        return STRATEGY.run(lambda: trained.model.objective(trained.model.compute_losses(batch, training=True)))

    results["objectives"] = [float(value) for value in STRATEGY.experimental_local_results(objectives())]
    results["finite"] = all(np.isfinite(row["loss"]) for row in trained.history)
    print(json.dumps(results))
""")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replicas") / "run"
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_step_follows_the_mean_of_the_gradients_within_each_half(results):
    assert results["from_mean_of_halves"] < 1e-4
    assert results["from_whole_batch"] > 0.01
    assert results["loss"] == pytest.approx(results["loss_of_halves"], rel=1e-4)
    assert results["step"] == 1


def test_the_norm_of_the_mean_gradient_is_clipped(results):
    assert results["clipped_norm"] == pytest.approx(1 / 3, rel=1e-3)


def test_replicas_draw_different_samples(results):
    # Of the same pairs, with the same weights, at the same step.
    first, second = results["objectives"]
    assert first != second
    assert first == pytest.approx(second, rel=0.2)


def test_a_training_on_two_devices_is_repeatable(results):
    assert results["finite"]
    assert results["replicas_agree"]
    assert results["is_repeatable"]
