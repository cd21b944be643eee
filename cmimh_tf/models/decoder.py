"""Codes back to features."""

from collections.abc import Sequence

from cmimh_tf.models.mlp import MLP


class Decoder(MLP):
    """The decoder of one modality: the mean of q(x | h), a mirror of the encoder.

    Args:
        hidden_units: the widths of the hidden layers.
        feature_units: the width of the features.
        seed: seed of the initialisation.
    """

    def __init__(self, hidden_units: Sequence[int], feature_units: int, seed: int, name: str):
        super().__init__(hidden_units, feature_units, "relu", seed, name=name)
