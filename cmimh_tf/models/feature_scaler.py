"""The fitted centring and scaling without which CMIMH does not train."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


class FeatureScaler(keras.layers.Layer):
    """(x - mean) * scale, fitted so that the training rows have a root-mean-square norm of `target_norm`.

    The size of the inputs sets the size of the reconstruction error against all other terms: features with a
    norm of about 1 collapse the codes, standardised ones saturate them. An unfitted scaler is the identity.

    Args:
        target_norm: the root-mean-square norm of the scaled training rows.
    """

    def __init__(self, target_norm: float, **kwargs: Any):
        super().__init__(trainable=False, **kwargs)
        self.target_norm = target_norm

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.mean = self.add_weight(shape=(input_shape[-1],), initializer="zeros", trainable=False, name="mean")
        self.scale = self.add_weight(shape=(), initializer="ones", trainable=False, name="scale")
        self.built = True

    def adapt(self, features: np.ndarray) -> None:
        """Fits mean and scale, in float64 whatever the features are.

        Args:
            features: [rows, dimensions] array of training rows.

        Raises:
            ValueError: if all rows are equal, so that there is nothing to scale.
        """
        mean = np.mean(features, axis=0, dtype=np.float64)
        # Mean squared norm of the centred rows = sum of the variances: no centred copy is needed.
        root_mean_square = float(np.sqrt(np.sum(np.var(features, axis=0, dtype=np.float64))))
        if not root_mean_square > 1e-30:
            raise ValueError(f"`features` of {self.name!r} must vary. Received: {len(features)} equal rows.")
        self.mean.assign(mean)
        self.scale.assign(self.target_norm / root_mean_square)

    def call(self, features: tf.Tensor) -> tf.Tensor:
        """[batch, dimensions] -> [batch, dimensions]."""
        return (features - self.mean) * self.scale
