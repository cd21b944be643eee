"""The networks of CMIMH as Keras layers.

They compute in the dtype of their inputs: given float64 features, the same encoder gives float64 logits. `hashing` uses
this to decide the sign of logits that float32 cannot tell from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.ops import inward_clip, uniform_noise
from cmimh_tf.stored_rows import Rows, read_blocks

# Kernels and biases of an MLP draw from different seeds.
_BIAS_SEED = 20


@keras.saving.register_keras_serializable(package="cmimh_tf")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` that computes in the dtype of its inputs."""

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(units, autocast=False, **kwargs)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """[..., input_units] -> [..., units]."""
        kernel, bias = tf.cast(self.kernel, inputs.dtype), tf.cast(self.bias, inputs.dtype)
        # TensorFlow fuses a product with `bias_add`, but not with a plain sum.
        outputs = tf.nn.bias_add(tf.matmul(inputs, kernel), bias)
        return outputs if self.activation is None else self.activation(outputs)


@keras.saving.register_keras_serializable(package="cmimh_tf")
class MLP(keras.layers.Layer):
    """Dense layers with one activation between them and none after the last.

    Args:
        hidden_units: the widths of the hidden layers.
        output_units: the width of the output.
        activation: the name of a Keras activation.
        seed: seed of the initialisation.
        initializer: "glorot", uniform with biases of 0, or "pytorch", PyTorch's default: weights and biases uniform
            within 1 / sqrt(inputs).

    Example:
        >>> MLP((1024, 1024), 32, "relu", seed=0)(tf.zeros([8, 500])).shape
        TensorShape([8, 32])
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        output_units: int,
        activation: str,
        seed: int,
        initializer: str = "glorot",
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.hidden_units = tuple(hidden_units)
        self.output_units = output_units
        self.activation = activation
        self.seed = seed
        self.initializer = initializer
        widths = (*self.hidden_units, output_units)
        self.denses = [
            Dense(
                width,
                activation=activation if position < len(widths) - 1 else None,
                kernel_initializer=keras.initializers.GlorotUniform(seed=seed + position),
                name=f"dense_{position}",
            )
            for position, width in enumerate(widths)
        ]

    def build(self, input_shape: Sequence[int | None]) -> None:
        shape = tuple(input_shape)
        for position, dense in enumerate(self.denses):
            if self.initializer == "pytorch":
                limit, seed = float(shape[-1] or 1) ** -0.5, self.seed + position
                dense.kernel_initializer = keras.initializers.RandomUniform(-limit, limit, seed=seed)
                dense.bias_initializer = keras.initializers.RandomUniform(-limit, limit, seed=seed + _BIAS_SEED)
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
            "initializer": self.initializer,
        }


@keras.saving.register_keras_serializable(package="cmimh_tf")
class Encoder(MLP):
    """Features to the logits of P(h = 1 | x), clipped so that no bit saturates.

    Args:
        hidden_units: the widths of the hidden layers.
        code_length: the number of bits.
        logit_limit: the logits are clipped to [-logit_limit, logit_limit]; None leaves them free.
        input_noise: norm of the noise that a training step adds to the features, relative to their norm.
        seed: seed of the initialisation.
        activation: of the hidden layers.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        code_length: int,
        logit_limit: float | None = 5.0,
        input_noise: float = 0.0,
        seed: int = 0,
        activation: str = "relu",
        **kwargs: Any,
    ):
        super().__init__(hidden_units, code_length, activation, seed, **kwargs)
        self.logit_limit = logit_limit
        self.input_noise = input_noise

    def call(self, features: tf.Tensor, noise_seed: tf.Tensor | None = None) -> tf.Tensor:
        """[batch, units] features -> [batch, code_length] logits.

        Args:
            features: [batch, units] tensor.
            noise_seed: [2] integers, the seed of the noise; None adds none.
        """
        if self.input_noise and noise_seed is not None:
            # Uniform noise, of deviation largest / sqrt(3): cheaper to draw than Gaussian noise.
            mean_square = 2.0 * tf.nn.l2_loss(features) / tf.cast(tf.size(features), features.dtype)
            features += uniform_noise(features, self.input_noise * tf.sqrt(3.0 * mean_square), noise_seed)
        logits = super().call(features)
        return logits if self.logit_limit is None else inward_clip(logits, self.logit_limit)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config["code_length"] = config.pop("output_units")
        return {**config, "logit_limit": self.logit_limit, "input_noise": self.input_noise}


@keras.saving.register_keras_serializable(package="cmimh_tf")
class Decoder(MLP):
    """Codes to features: the mean of q(x | h).

    Args:
        hidden_units: the widths of the hidden layers.
        feature_units: the width of the features.
        seed: seed of the initialisation.
    """

    def __init__(self, hidden_units: Sequence[int], feature_units: int, seed: int = 0, **kwargs: Any):
        super().__init__(hidden_units, feature_units, kwargs.pop("activation", "relu"), seed, **kwargs)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {**config, "feature_units": config.pop("output_units")}


@keras.saving.register_keras_serializable(package="cmimh_tf")
class Discriminator(MLP):
    """One logit per code: positive for joint codes, negative for codes shuffled per bit.

    Args:
        hidden_units: the widths of the hidden layers.
        seed: seed of the initialisation.
    """

    def __init__(self, hidden_units: Sequence[int], seed: int = 0, **kwargs: Any):
        super().__init__(hidden_units, 1, kwargs.pop("activation", "leaky_relu"), seed, **kwargs)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["output_units"]
        return config


@keras.saving.register_keras_serializable(package="cmimh_tf")
class Critic(keras.layers.Layer):
    """T(a, b) = phi_image(a) . phi_text(b): two networks score all pairs of a batch with one matrix product.

    Separate networks can translate between codes that agree in no bit. With one network for both modalities,
    phi_image = phi_text, equal codes score |phi(a)|^2.

    Args:
        hidden_units: the widths of the hidden layers of both networks.
        embedding_units: the width of the space in which the product is taken.
        seed: seed of the initialisation.
        networks: "separate", or one network "shared" by both modalities.
        initializer: as of `MLP`.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        embedding_units: int,
        seed: int = 0,
        networks: str = "separate",
        initializer: str = "glorot",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.options = {
            "hidden_units": tuple(hidden_units), "embedding_units": embedding_units, "seed": seed,
            "networks": networks, "initializer": initializer,
        }  # fmt: skip
        mlp = partial(MLP, hidden_units, embedding_units, "leaky_relu", initializer=initializer)
        if networks == "shared":
            self.image_network = self.text_network = mlp(seed, name="network")
        else:
            self.image_network = mlp(seed, name="image_network")
            self.text_network = mlp(seed + 50, name="text_network")

    def build(self, input_shape: Sequence[int | None]) -> None:
        self.image_network.build(input_shape)
        if self.text_network is not self.image_network:
            self.text_network.build(input_shape)
        self.built = True

    def call(self, image_codes: tf.Tensor, text_codes: tf.Tensor) -> tf.Tensor:
        """The scores of all pairs.

        Args:
            image_codes: [images, code_length] probs or codes.
            text_codes: [texts, code_length] probs or codes.

        Returns:
            [images, texts] tensor of T.
        """
        return tf.matmul(self.image_network(image_codes), self.text_network(text_codes), transpose_b=True)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.options}


@keras.saving.register_keras_serializable(package="cmimh_tf")
class FeatureScaler(keras.layers.Layer):
    """(x - mean) * scale, fitted so that the training rows have a root-mean-square norm of `target_norm`.

    The size of the inputs sets the size of the reconstruction error against all other terms: features with a norm of
    about 1 collapse the codes, standardised ones saturate them. An unfitted scaler is the identity.

    Args:
        target_norm: the root-mean-square norm of the scaled training rows.

    Example:
        >>> scaler = FeatureScaler(10.0)
        >>> scaler.adapt(features)
        >>> scaled = scaler(features)
    """

    def __init__(self, target_norm: float = 10.0, **kwargs: Any):
        super().__init__(trainable=False, autocast=False, **kwargs)
        self.target_norm = target_norm

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.mean = self.add_weight(shape=(input_shape[-1],), initializer="zeros", trainable=False, name="mean")
        self.scale = self.add_weight(shape=(), initializer="ones", trainable=False, name="scale")
        self.built = True

    @property
    def is_fitted(self) -> bool:
        """Whether the scaler differs from the identity."""
        return self.built and bool(self.scale.numpy() != 1.0 or np.any(self.mean.numpy() != 0.0))

    def adapt(self, features: Rows | tf.data.Dataset) -> None:
        """Fits mean and scale, in float64 whatever the dtype of the features.

        Args:
            features: [rows, units] array or stored rows, or a dataset of such batches, which is read once.

        Raises:
            ValueError: if all rows are equal, so that there is nothing to scale.
        """
        rows, mean, mean_squared_norm = moments(features)
        root_mean_square = float(np.sqrt(mean_squared_norm))
        if not root_mean_square > 1e-30:
            raise ValueError(f"`features` of {self.name!r} must vary. Received: {rows} equal rows.")
        if not self.built:
            self.build((None, len(mean)))
        self.mean.assign(mean)
        self.scale.assign(self.target_norm / root_mean_square)

    def call(self, features: tf.Tensor) -> tf.Tensor:
        """[batch, units] -> [batch, units]."""
        return (features - tf.cast(self.mean, features.dtype)) * tf.cast(self.scale, features.dtype)

    def get_config(self) -> Mapping[str, Any]:
        return {**super().get_config(), "target_norm": self.target_norm}


def moments(features: Rows | tf.data.Dataset) -> tuple[int, np.ndarray, float]:
    """Number of rows, their mean, and the mean squared norm of the centred rows (the sum of the variances).

    Only one block of rows is in memory at a time, and arrays and stored rows of equal values give equal results.

    Args:
        features: [rows, units] array or stored rows, or a dataset of such batches.
    """
    rows, mean, squares = 0, np.zeros(()), np.zeros(())
    blocks = features.as_numpy_iterator() if isinstance(features, tf.data.Dataset) else read_blocks(features)
    for block in blocks:
        values = np.asarray(block, np.float64)
        count, block_mean = len(values), np.mean(values, axis=0)
        # Chan's update of mean and sum of squares keeps its precision over any number of blocks.
        difference = block_mean - mean
        squares = squares + np.sum(np.square(values - block_mean), axis=0)
        squares = squares + np.square(difference) * rows * count / (rows + count)
        mean = mean + difference * count / (rows + count)
        rows += count
    return rows, mean, float(np.sum(squares) / max(rows, 1))
