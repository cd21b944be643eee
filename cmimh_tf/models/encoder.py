"""Features to the logits of a code."""

from collections.abc import Sequence

import tensorflow as tf

from cmimh_tf.models.mlp import MLP
from cmimh_tf.ops.inward_clip import inward_clip


class Encoder(MLP):
    """The encoder of one modality: logits of P(h = 1 | x), clipped so that no bit saturates.

    Args:
        hidden_units: the widths of the hidden layers.
        code_length: the number of bits.
        logit_limit: the logits are clipped to [-logit_limit, logit_limit]; None leaves them free.
        input_noise: norm of the noise that a training step adds to the features, relative to theirs.
        seed: seed of the initialisation.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        code_length: int,
        logit_limit: float | None,
        input_noise: float,
        seed: int,
        name: str,
    ):
        super().__init__(hidden_units, code_length, "relu", seed, name=name)
        self.logit_limit = logit_limit
        self.input_noise = input_noise

    def call(self, features: tf.Tensor, noise_seed: tf.Tensor | None = None) -> tf.Tensor:
        """[batch, dimensions] features -> [batch, code_length] logits.

        Args:
            features: [batch, dimensions] tensor.
            noise_seed: [2] integers, the seed of the noise; None adds none.
        """
        if self.input_noise and noise_seed is not None:
            # Uniform noise, of deviation largest / sqrt(3): cheaper to draw than Gaussian noise.
            largest = self.input_noise * tf.sqrt(3.0 * tf.reduce_mean(tf.square(features)))
            features += largest * tf.random.stateless_uniform(tf.shape(features), noise_seed, -1.0, 1.0)
        logits = super().call(features)
        return logits if self.logit_limit is None else inward_clip(logits, self.logit_limit)
