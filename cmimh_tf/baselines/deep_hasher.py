"""A hasher with one Keras network per view: what CIRH, UCCH and DGCPN have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.baselines.hasher import Hasher, check_fitted, check_width
from cmimh_tf.codes import pack_bits

# Rows are hashed in blocks, so that memory does not grow with the number of rows.
_BLOCK_ROWS = 4096


class DeepHasher(Hasher):
    """Bit l of an item is 1 where output l of its view's network is at least 0.

    A subclass sets `_image_network` and `_text_network` in `fit`. Each maps float32 features [N, D] to [N, L].
    """

    _image_network: keras.Sequential | None = None
    _text_network: keras.Sequential | None = None

    def hash_images(self, image: Any) -> np.ndarray:
        return _hash(check_fitted(self._image_network), image, "image")

    def hash_texts(self, text: Any) -> np.ndarray:
        return _hash(check_fitted(self._text_network), text, "text")


def make_network(
    input_units: int,
    hidden_units: Sequence[int],
    code_length: int,
    *,
    random: np.random.Generator,
    unit_inputs: bool = False,
    dropout: float = 0.0,
    output_deviation: float | None = None,
) -> keras.Sequential:
    """Hidden layers with ReLU, then one output per bit, initialised as PyTorch does by default.

    Args:
        input_units: D, the width of the features.
        hidden_units: the widths of the hidden layers.
        code_length: L, the number of outputs.
        random: the source of the seeds of all layers.
        unit_inputs: whether features are first scaled to unit length.
        dropout: the share of the last hidden layer that a training step drops.
        output_deviation: standard deviation of the output kernel, drawn from a normal distribution; None draws it
            as the other kernels.

    Returns:
        A built network, [N, D] -> [N, L].
    """
    layers: list[keras.layers.Layer] = [keras.layers.UnitNormalization(axis=-1)] if unit_inputs else []
    width = input_units
    for units in hidden_units:
        layers.append(torch_dense(units, width, random, activation="relu"))
        width = units
    if dropout:
        layers.append(keras.layers.Dropout(dropout, seed=_draw_seed(random)))
    output = torch_dense(code_length, width, random)
    if output_deviation is not None:
        output.kernel_initializer = keras.initializers.RandomNormal(0.0, output_deviation, seed=_draw_seed(random))
    return keras.Sequential([keras.Input([input_units]), *layers, output])


def torch_dense(
    units: int, input_units: int, random: np.random.Generator, activation: str | None = None
) -> keras.layers.Dense:
    """A dense layer with PyTorch's default initialisation: kernel and bias uniform within 1 / sqrt(input_units).

    The authors of the deep methods chose their rates and lengths with it.
    """
    bound = 1 / np.sqrt(input_units)
    kernel, bias = (keras.initializers.RandomUniform(-bound, bound, seed=_draw_seed(random)) for _ in range(2))
    return keras.layers.Dense(units, activation, kernel_initializer=kernel, bias_initializer=bias)


class FusedAdam:
    """Adam by TensorFlow's own kernel, which reads and writes each variable once.

    Keras composes the same update of about 20 operations per variable. The layers here are so wide, or so many, that
    this takes a good part of the time.

    Args:
        learning_rate: the step size.
        variables: what to update.
    """

    def __init__(self, learning_rate: float, variables: Sequence[keras.Variable]) -> None:
        self.learning_rate = learning_rate
        self.variables = list(variables)
        self.step = tf.Variable(0.0)
        self.moments = [[tf.Variable(tf.zeros(w.shape)) for _ in range(2)] for w in self.variables]

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """One step, with PyTorch's decay rates and epsilon."""
        first_decay, second_decay = 0.9, 0.999
        step = self.step.assign_add(1.0)
        for variable, (first, second), gradient in zip(self.variables, self.moments, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.value.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=tf.pow(first_decay, step),
                beta2_power=tf.pow(second_decay, step),
                lr=self.learning_rate,
                beta1=first_decay,
                beta2=second_decay,
                epsilon=1e-8,
                grad=gradient,
            )


def shuffled_batches(num_rows: int, batch_size: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Every row once, in random order, in batches of nearly equal size that do not exceed `batch_size`."""
    num_batches = -(-num_rows // batch_size)
    yield from np.array_split(random.permutation(num_rows), num_batches)


def check_positive(**values: float) -> None:
    """Raises ValueError for the first value that is not above 0, named by its keyword."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"`{name}` must be positive. Received: {name}={value}.")


def check_shares(**values: float) -> None:
    """Raises ValueError for the first value outside [0, 1], named by its keyword."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"`{name}` must be in [0, 1]. Received: {name}={value}.")


def _hash(network: keras.Sequential, features: Any, name: str) -> np.ndarray:
    """Packed codes, uint8 [N, L/8], of features [N, D]; `name` is the argument's name, for messages."""
    features = check_width(features, network.input_shape[-1], name)
    codes = np.empty((len(features), network.output_shape[-1] // 8), np.uint8)
    for start in range(0, len(features), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        outputs = network(features[block].astype(np.float32), training=False)
        codes[block] = pack_bits(outputs.numpy() >= 0)
    return codes


def _draw_seed(random: np.random.Generator) -> int:
    return int(random.integers(2**31))
