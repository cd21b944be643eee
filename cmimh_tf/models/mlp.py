"""The multi-layer perceptron that every network of CMIMH is made of."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="cmimh_tf")
class MLP(keras.layers.Layer):
    """Dense layers with one activation in between and none after the last.

    Args:
        hidden_units: the widths of the hidden layers.
        output_units: the width of the output.
        activation: "relu" or "leaky_relu".
        seed: seed of the Glorot-uniform initialisation.

    Example:
        >>> MLP((1024, 1024), 32, "relu", seed=0)(tf.zeros([8, 500])).shape
        TensorShape([8, 32])
    """

    def __init__(self, hidden_units: Sequence[int], output_units: int, activation: str, seed: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.hidden_units = tuple(hidden_units)
        self.output_units = output_units
        self.activation = activation
        self.seed = seed
        widths = (*self.hidden_units, output_units)
        self.denses = [
            keras.layers.Dense(
                width,
                activation=activation if position < len(widths) - 1 else None,
                kernel_initializer=keras.initializers.GlorotUniform(seed=seed + position),
                name=f"dense_{position}",
            )
            for position, width in enumerate(widths)
        ]

    def build(self, input_shape: Sequence[int | None]) -> None:
        shape = tuple(input_shape)
        for dense in self.denses:
            dense.build(shape)
            shape = (*shape[:-1], dense.units)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """[batch, input_units] -> [batch, output_units]."""
        outputs = inputs
        for dense in self.denses:
            outputs = dense(outputs)
        return outputs

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_units": self.hidden_units,
            "output_units": self.output_units,
            "activation": self.activation,
            "seed": self.seed,
        }
