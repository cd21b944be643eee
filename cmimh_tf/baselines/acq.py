"""ACQ: canonical variates, rotated in turns towards binary codes that both views share."""

import numpy as np

from cmimh_tf.baselines.linear import to_signs
from cmimh_tf.baselines.rotated_variates import RotatedVariates, procrustes


class ACQ(RotatedVariates):
    """Alternating co-quantisation on canonical variates.

    With the variates X and Y of the two views, each column weighted by its correlation, it looks for common
    codes B and rotations R and S that

        minimise ||B - X R||^2 + ||B - Y S||^2    over B in {-1, 1}, R R' = I, S S' = I.

    Reference: Irie, Arai and Taniguchi, "Alternating Co-Quantization for Cross-modal Hashing", ICCV 2015. The
    weights by correlation are those of Gong et al., "A Multi-View Embedding Space for Modeling Internet
    Images, Tags, and Their Semantics", IJCV 2014.
    """

    def _rotations(
        self, image_variates: np.ndarray, text_variates: np.ndarray, rotation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return alternate_rotations(image_variates, text_variates, rotation, rounds=self.rounds)


def alternate_rotations(
    image_variates: np.ndarray, text_variates: np.ndarray, rotation: np.ndarray, *, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Minimises the objective of `ACQ` by turns over the codes and over the rotations.

    Each step is the exact minimum over its own variable, so the objective never rises.

    Args:
        image_variates: [N, K] projections of images.
        text_variates: [N, K] projections of texts, paired by row.
        rotation: [K, L] with orthonormal rows, where both rotations start.
        rounds: number of alternations.

    Returns:
        The rotation of the images and the one of the texts, [K, L] each.
    """
    image_rotation = text_rotation = rotation
    for _ in range(rounds):
        consensus = image_variates @ image_rotation + text_variates @ text_rotation
        codes = to_signs(consensus)
        image_rotation = procrustes(image_variates, codes)
        text_rotation = procrustes(text_variates, codes)
    return image_rotation, text_rotation
