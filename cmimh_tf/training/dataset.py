"""Training pairs as `tf.data` datasets, in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from cmimh_tf.stored_rows import Rows, StoredRows
from cmimh_tf.training.neighbourhood import find_neighbourhood

if TYPE_CHECKING:
    from cmimh_tf.model import CMIMH

_BATCHES_AT_ONCE = 4


def check_pairs(x: Mapping[str, Any]) -> dict[str, Rows]:
    """The features of `{"image": ..., "text": ...}`, with "coordinates" where they are given.

    Raises:
        ValueError: if a modality is missing, is not a matrix of finite numbers, or has another number of rows.
    """
    if set(x) not in ({"image", "text"}, {"image", "text", "coordinates"}):
        raise ValueError(f"`x` must have the keys image and text. Received: {', '.join(map(str, x)) or 'none'}.")
    columns = {name: values if isinstance(values, StoredRows) else np.asarray(values) for name, values in x.items()}
    for name, values in columns.items():
        if isinstance(values, StoredRows):
            continue
        if values.ndim != 2 or values.dtype.kind not in "fiu":
            raise ValueError(
                f"`{name}` must be numbers of shape [pairs, units]. Received: {values.dtype} {values.shape}."
            )
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            raise ValueError(f"`{name}` must be finite. Received: row {int(np.argmin(finite))} with NaN or infinity.")
    image, text = columns["image"], columns["text"]
    if len(image) != len(text) or len(image) < 2:
        raise ValueError(
            "`image` and `text` must have the same number of rows, at least 2, row i of both being one pair. "
            f"Received: {len(image)} and {len(text)} rows."
        )
    if "coordinates" in columns and len(columns["coordinates"]) != len(image):
        raise ValueError(
            f"`coordinates` must have one row per pair, {len(image)}. Received: {len(columns['coordinates'])} rows."
        )
    return columns


def training_batches(
    columns: Mapping[str, Rows],
    batch_size: int,
    seed: int,
    first_epoch: int,
    last_epoch: int,
    shuffle: bool = True,
) -> tf.data.Dataset:
    """Batches of pairs, epoch after epoch. Arrays and stored rows of equal values give equal batches.

    Args:
        columns: "image" [pairs, image_units] and "text" [pairs, text_units], and any other matrices of as many rows.
        batch_size: pairs per batch; an incomplete batch at the end of an epoch is dropped.
        seed: of the order.
        first_epoch: the epoch to start with, 0 unless resuming.
        last_epoch: the epoch before which to end.
        shuffle: whether each epoch has an order of its own.

    Returns:
        A dataset of float32 [batch, units] for each column.
    """
    num_pairs = len(columns["image"])

    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        order = tf.range(num_pairs)
        if shuffle:
            order = tf.random.experimental.stateless_shuffle(order, seed=tf.stack([seed, epoch]))
        return tf.data.Dataset.from_tensor_slices(order).batch(min(batch_size, num_pairs), drop_remainder=True)

    epochs = tf.data.Dataset.range(first_epoch, last_epoch, output_type=tf.int32).flat_map(one_epoch)
    options = tf.data.Options()
    options.deterministic = True
    # One gather per batch leaves nothing to tune.
    options.autotune.enabled = False
    is_stored = any(isinstance(values, StoredRows) for values in columns.values())
    # A batch is hundreds of reads, each of which waits for the disk: several batches are read at a time, in order.
    batches = epochs.map(_reader(columns), num_parallel_calls=_BATCHES_AT_ONCE if is_stored else None)
    return batches.prefetch(2).with_options(options)


def _reader(columns: Mapping[str, Rows]) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """A function of a dataset: row numbers [batch] -> the rows of all columns."""
    if not any(isinstance(values, StoredRows) for values in columns.values()):
        tensors = {name: tf.constant(values, tf.float32) for name, values in columns.items()}
        return lambda rows: {name: tf.gather(values, rows) for name, values in tensors.items()}

    def read(rows: np.ndarray) -> list[np.ndarray]:
        return [np.asarray(values[rows], np.float32) for values in columns.values()]

    def take(rows: tf.Tensor) -> dict[str, tf.Tensor]:
        found = tf.numpy_function(read, [rows], [tf.float32] * len(columns), stateful=False)
        return {
            name: tf.ensure_shape(values, [rows.shape[0], columns[name].shape[1]])
            for name, values in zip(columns, found, strict=True)
        }

    return take


def prepare_dataset(dataset: tf.data.Dataset, model: CMIMH) -> tf.data.Dataset:
    """Does for a dataset what `fit` does for arrays: fits the model's scaling and adds coordinates.

    The dataset is read once, and its features are held in memory.

    Args:
        dataset: elements {"image": ..., "text": ...}: single pairs of vectors, or batches of them.
        model: the model to be trained; its widths and scaling are set.

    Returns:
        A dataset of the same pairs, with "coordinates" where the model reconstructs them. Batches stay batches of the
        same size.

    Example:
        >>> dataset = prepare_dataset(dataset, model)
        >>> model.fit(dataset.shuffle(10_000, seed=0).batch(128, drop_remainder=True))
    """
    spec = dataset.element_spec
    if not isinstance(spec, Mapping) or not {"image", "text"} <= set(spec):
        raise ValueError(f"`dataset` must have elements {{'image': ..., 'text': ...}}. Received: {spec}.")
    is_batched = len(spec["image"].shape) == 2
    elements = list(
        dataset.map(lambda element: {name: element[name] for name in ("image", "text")}).as_numpy_iterator()
    )
    if not elements:
        raise ValueError("`dataset` must have elements. Received: an empty dataset.")
    join = np.concatenate if is_batched else np.stack
    columns = check_pairs({name: join([element[name] for element in elements]) for name in ("image", "text")})
    model.adapt(columns["image"], columns["text"])
    if model.needs_coordinates:
        columns |= find_neighbourhood(columns["image"], columns["text"], model.config.neighbourhood)
    columns = {name: np.asarray(values, np.float32) for name, values in columns.items()}
    prepared = tf.data.Dataset.from_tensor_slices(columns)
    if not is_batched:
        return prepared
    return prepared.batch(len(elements[0]["image"]), drop_remainder=spec["image"].shape[0] is not None)
