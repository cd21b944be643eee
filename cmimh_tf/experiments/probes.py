"""Two closer looks at CMIMH: how dependent the bits of a finished model are, and what a training step costs."""

import statistics
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.layers import Discriminator
from cmimh_tf.losses import binary_cross_entropy
from cmimh_tf.model import CMIMH
from cmimh_tf.ops import shuffle_bits
from cmimh_tf.overrides import override
from cmimh_tf.stored_rows import Rows
from cmimh_tf.training.neighbourhood import find_neighbourhood

_UNITS = (256, 256)
_PROBE_STEPS = 600
_BATCH = 256
_RATE = 1e-3

_ALTERNATIONS = 7
_TIMED_STEPS = 5


def probe_total_correlation(probs: np.ndarray, *, seed: int, steps: int = _PROBE_STEPS) -> float:
    """Estimates the total correlation of the bits, in nats, by the density-ratio trick.

    A model without the independence term has no discriminator, and that of a model with the term was trained against
    moving codes. This function therefore trains a new one on frozen probabilities, the same way for every model. It
    learns on one half of the rows to distinguish probs from probs shuffled per bit. The estimate is its mean logit on
    the other half, so overfitting lowers it rather than raises it. Independent bits give about 0.

    Args:
        probs: [rows, code_length] probabilities of bits.
        seed: of the halves, the initialisation and the batches.
        steps: number of training steps.

    Returns:
        The estimate. Only estimates with the same number of rows and steps are comparable.

    Raises:
        ValueError: if there are fewer than 4 rows.
    """
    if len(probs) < 4:
        raise ValueError(f"`probs` must have at least 4 rows. Received: probs.shape={probs.shape}.")
    random = np.random.default_rng([seed, 3])
    order = random.permutation(len(probs))
    fitted, held_out = (probs[rows].astype(np.float32) for rows in np.array_split(order, 2))
    discriminator = Discriminator(_UNITS, seed, name="probe")
    discriminator.build((None, probs.shape[1]))
    optimizer = keras.optimizers.Adam(_RATE)
    optimizer.build(discriminator.trainable_variables)

    @tf.function(reduce_retracing=True)
    def step(batch: tf.Tensor, shuffle_seed: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = binary_cross_entropy(discriminator(batch), discriminator(shuffle_bits(batch, shuffle_seed)))
        optimizer.apply(tape.gradient(loss, discriminator.trainable_variables))

    for number in range(steps):
        rows = random.integers(0, len(fitted), min(_BATCH, len(fitted)))
        step(tf.constant(fitted[rows]), tf.constant([seed, number]))
    return float(tf.reduce_mean(discriminator(tf.constant(held_out))))


def time_steps(config: CMIMHConfig, train: PairedData) -> dict[str, float]:
    """Times training steps of a configuration, relative to the same configuration with probs as critic inputs.

    The two alternate in one process, so that other load on the machine slows both alike.

    Args:
        config: the variant.
        train: the source of the batch.

    Returns:
        "relative_step_time", a median of ratios, and "step_seconds".
    """
    base = override(config, {"loss.critic_inputs": "probs", "loss.critic_samples": 1})
    variant_step, base_step = _make_step(config, train), _make_step(base, train)
    pairs = [(_seconds_per_step(variant_step), _seconds_per_step(base_step)) for _ in range(_ALTERNATIONS)]
    return {
        "relative_step_time": statistics.median(variant / probs for variant, probs in pairs),
        "step_seconds": statistics.median(variant for variant, _ in pairs),
    }


def _make_step(config: CMIMHConfig, train: PairedData) -> Callable[[], object]:
    """The compiled step that `fit` runs, on one batch that stays in memory, warmed up."""
    size = min(config.training.batch_size, len(train))
    model = CMIMH(config=config)
    model.adapt(train.image, train.text)
    model.compile()
    columns: dict[str, Rows] = {"image": train.image[:size], "text": train.text[:size]}
    if model.needs_coordinates:
        columns |= find_neighbourhood(columns["image"], columns["text"], config.neighbourhood)
    batch = {name: tf.constant(np.asarray(values)) for name, values in columns.items()}
    step = tf.function(model.train_step)

    def run() -> object:
        return step(batch)["loss"].numpy()

    run()
    return run


def _seconds_per_step(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(_TIMED_STEPS):
        step()
    return (time.perf_counter() - started) / _TIMED_STEPS
