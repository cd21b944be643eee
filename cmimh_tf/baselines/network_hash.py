"""A trained network with one hidden layer, in NumPy, whose output's signs are bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.baselines.hasher import CentredView, check_width
from cmimh_tf.codes import pack_bits

# Rows are hashed in blocks to bound the memory.
_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class NetworkHash:
    """Bit l of x is 1 where relu(inputs(x) V + v) . W[:, l] + w[l] >= 0.

    Attributes:
        view: how features were centred and scaled in `fit`.
        hidden_kernel: V, [D, H].
        hidden_bias: v, [H].
        output_kernel: W, [H, L].
        output_bias: w, [L].
    """

    view: CentredView
    hidden_kernel: np.ndarray
    hidden_bias: np.ndarray
    output_kernel: np.ndarray
    output_bias: np.ndarray

    def logits(self, features: np.ndarray) -> np.ndarray:
        """[N, D] -> float32 [N, L]."""
        hidden = np.maximum(0, network_inputs(self.view, features) @ self.hidden_kernel + self.hidden_bias)
        return hidden @ self.output_kernel + self.output_bias

    def hash(self, features: Any, name: str) -> np.ndarray:
        """Packed codes, uint8 [N, L/8], of features [N, D]; `name` is the argument's name, for messages."""
        features = check_width(features, len(self.hidden_kernel), name)
        codes = np.empty((len(features), len(self.output_bias) // 8), np.uint8)
        for start in range(0, len(features), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            codes[block] = pack_bits(self.logits(features[block]) >= 0)
        return codes


def network_inputs(view: CentredView, features: np.ndarray) -> np.ndarray:
    """Features with a mean variance of 1 over the training rows, as usual initialisations expect. float32 [N, D]."""
    return (view(features) * np.sqrt(features.shape[1])).astype(np.float32)
