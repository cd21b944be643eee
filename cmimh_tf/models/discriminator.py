"""The network that tells dependent bits from independent ones."""

from collections.abc import Sequence

from cmimh_tf.models.mlp import MLP


class Discriminator(MLP):
    """One logit: positive for codes as they come, negative for codes shuffled per bit.

    Args:
        hidden_units: the widths of the hidden layers.
        seed: seed of the initialisation.
    """

    def __init__(self, hidden_units: Sequence[int], seed: int, name: str):
        super().__init__(hidden_units, 1, "leaky_relu", seed, name=name)
