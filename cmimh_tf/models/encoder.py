"""Features to the logits of a code."""

from collections.abc import Sequence

import tensorflow as tf

from cmimh_tf.models.mlp import MLP


class Encoder(MLP):
    """The encoder of one modality: logits of P(h = 1 | x), clipped so that no bit saturates for good.

    Args:
        hidden_units: the widths of the hidden layers.
        code_length: the number of bits.
        logit_limit: the logits are clipped to [-logit_limit, logit_limit]; None leaves them free.
        seed: seed of the initialisation.
    """

    def __init__(self, hidden_units: Sequence[int], code_length: int, logit_limit: float | None, seed: int, name: str):
        super().__init__(hidden_units, code_length, "relu", seed, name=name)
        self.logit_limit = logit_limit

    def call(self, features: tf.Tensor) -> tf.Tensor:
        """[batch, dimensions] features -> [batch, code_length] logits."""
        logits = super().call(features)
        if self.logit_limit is None:
            return logits
        return tf.clip_by_value(logits, -self.logit_limit, self.logit_limit)
