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
    swap_share: float = 0.0,
) -> tf.data.Dataset:
    """Batches of shuffled pairs, epoch after epoch.

    Args:
        image: [pairs, image_units] array.
        text: [pairs, text_units] array.
        batch_size: pairs a batch; what is left over at the end of an epoch is dropped.
        seed: of the order, and of the swaps.
        first_epoch: the epoch to start with, 0 unless resuming.
        last_epoch: the epoch before which to end.
        neighbourhood: adds targets to the batches, and makes swaps possible.
        swap_share: share of the pairs whose text becomes that of a random neighbour.

    Returns:
        A dataset of {"image": [batch, image_units], "text": [batch, text_units]}, with "image_target" and "text_target"
        of the same shapes if there is a `neighbourhood`.
    """
    num_pairs = len(image)
    columns = {"image": tf.constant(image, tf.float32), "text": tf.constant(text, tf.float32)}
    if neighbourhood:
        columns["image_target"] = tf.constant(neighbourhood.image_targets)
        columns["text_target"] = tf.constant(neighbourhood.text_targets)
        neighbours = tf.constant(neighbourhood.rows)

    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        seeds = tf.unstack(tf.random.split(tf.stack([seed, epoch]), num=3))
        image_rows = tf.random.experimental.stateless_shuffle(tf.range(num_pairs), seed=seeds[0])
        text_rows = image_rows
        if neighbourhood and swap_share:
            choice = tf.random.stateless_uniform(
                [num_pairs], seeds[1], maxval=neighbourhood.rows.shape[1], dtype=tf.int32
            )
            swapped = tf.random.stateless_uniform([num_pairs], seeds[2]) < swap_share
            text_rows = tf.where(swapped, tf.gather(neighbours, choice, batch_dims=1), tf.range(num_pairs))
            text_rows = tf.gather(text_rows, image_rows)
        rows = tf.data.Dataset.from_tensor_slices({"image": image_rows, "text": text_rows})
        return rows.batch(min(batch_size, num_pairs), drop_remainder=True)

    def take(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: tf.gather(values, rows[name.split("_")[0]]) for name, values in columns.items()}

    epochs = tf.data.Dataset.range(first_epoch, last_epoch, output_type=tf.int32).flat_map(one_epoch)
    return epochs.map(take).prefetch(2)
