"""CCA-ITQ: canonical variates, of which each view is rotated on its own towards binary codes."""

import numpy as np

from cmimh_tf.baselines.linear import to_signs
from cmimh_tf.baselines.rotated_variates import RotatedVariates, procrustes


class CCAITQ(RotatedVariates):
    """Iterative quantisation of each view after CCA.

    For the canonical variates V of a view, each column weighted by its correlation, it minimises

        ||B - V R||^2    over B in {-1, 1} and R R' = I.

    `ACQ` looks for one B for both views. Here each view has its own, and the only things that keep the codes
    of a pair alike are that their variates are, and that both rotations start from the same one.

    Reference: Gong and Lazebnik, "Iterative Quantization: A Procrustean Approach to Learning Binary Codes",
    CVPR 2011.
    """

    def _rotations(
        self, image_variates: np.ndarray, text_variates: np.ndarray, rotation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return (
            iterative_quantisation(image_variates, rotation, rounds=self.rounds),
            iterative_quantisation(text_variates, rotation, rounds=self.rounds),
        )


def iterative_quantisation(variates: np.ndarray, rotation: np.ndarray, *, rounds: int) -> np.ndarray:
    """Minimises ||B - V R||^2 by turns over the codes B and the rotation R; the value never rises.

    Args:
        variates: V, [N, K].
        rotation: [K, L] with orthonormal rows, where R starts.
        rounds: number of alternations.

    Returns:
        R, [K, L].
    """
    for _ in range(rounds):
        codes = to_signs(variates @ rotation)
        rotation = procrustes(variates, codes)
    return rotation
