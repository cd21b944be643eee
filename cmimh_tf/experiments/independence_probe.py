"""How dependent the bits of a finished model are, by a discriminator trained afterwards.

A model without the independence term has no discriminator of its own, and the discriminator of one that has it was
trained against moving codes. A fresh one on frozen probabilities measures both alike.
"""

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.losses.total_correlation import discriminator_loss, total_correlation
from cmimh_tf.models.discriminator import Discriminator
from cmimh_tf.ops.shuffle import shuffle_bits

_UNITS = (256, 256)
_STEPS = 600
_BATCH = 256
_RATE = 1e-3


def probe_total_correlation(probs: np.ndarray, *, seed: int, steps: int = _STEPS) -> float:
    """Estimates the total correlation of the bits, in nats, by the density-ratio trick.

    A discriminator learns on one half of the rows to tell probs from probs shuffled per bit; its mean logit on the
    other half is the estimate, which overfitting lowers rather than raises. Independent bits give about 0.

    Args:
        probs: [rows, code_length] probabilities of bits.
        seed: of the halves, the initialisation and the batches.
        steps: of training.

    Returns:
        The estimate; comparable only between estimates made with the same number of rows and steps.

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
            loss = discriminator_loss(discriminator(batch), discriminator(shuffle_bits(batch, shuffle_seed)))
        optimizer.apply(tape.gradient(loss, discriminator.trainable_variables))

    for number in range(steps):
        rows = random.integers(0, len(fitted), min(_BATCH, len(fitted)))
        step(tf.constant(fitted[rows]), tf.constant([seed, number]))
    return float(total_correlation(discriminator(tf.constant(held_out))))
