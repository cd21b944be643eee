"""Training batches whose order depends on the seed and the epoch alone, so that a run can resume."""

import numpy as np
import tensorflow as tf

from cmimh_tf.training.neighbourhood import Neighbourhood


def steps_per_epoch(num_pairs: int, batch_size: int) -> int:
    """Full batches in one pass; a set smaller than a batch is one batch of itself."""
    return max(1, num_pairs // batch_size)


def training_batches(
    image: np.ndarray,
    text: np.ndarray,
    batch_size: int,
    seed: int,
    first_epoch: int,
    last_epoch: int,
    neighbourhood: Neighbourhood | None = None,
) -> tf.data.Dataset:
    """Batches of shuffled pairs, epoch after epoch.

    Args:
        image: [pairs, image_units] array.
        text: [pairs, text_units] array.
        batch_size: pairs a batch; what is left over at the end of an epoch is dropped.
        seed: of the order.
        first_epoch: the epoch to start with, 0 unless resuming.
        last_epoch: the epoch before which to end.
        neighbourhood: adds its targets to the batches.

    Returns:
        A dataset of {"image": [batch, image_units], "text": [batch, text_units]}, with "image_target" and "text_target"
        of the same shapes if there is a `neighbourhood`.
    """
    num_pairs = len(image)
    columns = {"image": tf.constant(image, tf.float32), "text": tf.constant(text, tf.float32)}
    if neighbourhood:
        columns["image_target"] = tf.constant(neighbourhood.image_targets)
        columns["text_target"] = tf.constant(neighbourhood.text_targets)

    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.experimental.stateless_shuffle(tf.range(num_pairs), seed=tf.stack([seed, epoch]))
        return tf.data.Dataset.from_tensor_slices(order).batch(min(batch_size, num_pairs), drop_remainder=True)

    def take(rows: tf.Tensor) -> dict[str, tf.Tensor]:
        return {name: tf.gather(values, rows) for name, values in columns.items()}

    epochs = tf.data.Dataset.range(first_epoch, last_epoch, output_type=tf.int32).flat_map(one_epoch)
    options = tf.data.Options()
    options.deterministic = True
    # One gather a batch leaves nothing to tune.
    options.autotune.enabled = False
    return epochs.map(take).prefetch(2).with_options(options)
