"""The neighbourhood of each training pair: what its codes reconstruct.

The paper trains each pair to reconstruct itself, so that a code spends bits on what is peculiar to one picture or one
sentence. Without labels, the nearest pairs in both feature spaces together are the best guess at what a label would
say: reconstructing their mean keeps the information that neighbours share.
"""

from dataclasses import dataclass

import numpy as np

from cmimh_tf.config import NeighbourhoodConfig

_BLOCK_ROWS = 1024
_SAMPLED_ROWS = 2000


@dataclass(frozen=True)
class Neighbourhood:
    """What the codes of the training pairs reconstruct.

    Attributes:
        image_targets: float32 [pairs, image_units].
        text_targets: float32 [pairs, text_units].
    """

    image_targets: np.ndarray
    text_targets: np.ndarray


def find_neighbourhood(image: np.ndarray, text: np.ndarray, options: NeighbourhoodConfig) -> Neighbourhood | None:
    """Finds the neighbours of all pairs by exhaustive search, in blocks.

    Args:
        image: [pairs, image_units] features.
        text: [pairs, text_units] features.
        options: how many neighbours, and how the two similarities are weighed.

    Returns:
        None when `options.neighbours` is 0, or there is no other pair.
    """
    count = min(options.neighbours, len(image) - 1)
    if count < 1:
        return None
    rows = nearest_pairs(image, text, count, options.text_similarity_weight)
    return Neighbourhood(
        neighbourhood_targets(image, rows, options.own_share),
        neighbourhood_targets(text, rows, options.own_share),
    )


def nearest_pairs(image: np.ndarray, text: np.ndarray, count: int, text_weight: float) -> np.ndarray:
    """The nearest other pairs by (1 - w) z(cos of images) + w z(cos of texts), w = `text_weight`.

    The cosines are of centred features, and z brings each modality's to zero mean and unit deviation, as one modality
    may spread its cosines far less than the other.

    Args:
        image: [pairs, image_units] features.
        text: [pairs, text_units] features.
        count: neighbours a pair, less than the number of pairs.
        text_weight: between 0 and 1.

    Returns:
        int32 [pairs, count], nearest first.
    """
    views = [(_unit_rows(image), 1.0 - text_weight), (_unit_rows(text), text_weight)]
    # The mean cosine of centred rows is nearly the same for all blocks: only the deviation matters for the order.
    weighed = [rows * np.sqrt(weight / _cosine_deviation(rows)).astype(np.float32) for rows, weight in views]
    joint = np.concatenate(weighed, axis=1)
    nearest = np.empty((len(joint), count), np.int32)
    for start in range(0, len(joint), _BLOCK_ROWS):
        similarity = joint[start : start + _BLOCK_ROWS] @ joint.T
        own = np.arange(len(similarity))
        similarity[own, start + own] = -np.inf
        candidates = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(similarity, candidates, axis=1), axis=1, kind="stable")
        nearest[start : start + len(own)] = np.take_along_axis(candidates, order, axis=1)
    return nearest


def neighbourhood_targets(features: np.ndarray, rows: np.ndarray, own_share: float) -> np.ndarray:
    """own_share * x + (1 - own_share) * mean of the neighbours, stretched about the centre to the spread of `features`.

    Averaging shrinks the spread; without the stretch the reconstruction would weigh less than its weight says.

    Args:
        features: [pairs, units] array.
        rows: int [pairs, neighbours].
        own_share: between 0 and 1.

    Returns:
        float32 [pairs, units].
    """
    centre = features.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = features - centre
    smoothed = own_share * centred
    for column in rows.T:
        smoothed += (1.0 - own_share) / rows.shape[1] * centred[column]
    spread = np.sqrt(np.mean(np.square(smoothed), dtype=np.float64))
    stretch = np.sqrt(np.mean(np.square(centred), dtype=np.float64)) / spread if spread > 0 else 1.0
    return (centre + np.float32(stretch) * smoothed).astype(np.float32)


def _unit_rows(features: np.ndarray) -> np.ndarray:
    centred = features - features.mean(axis=0, dtype=np.float64).astype(np.float32)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    return (centred / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float32)


def _cosine_deviation(unit_rows: np.ndarray) -> np.float64:
    """Standard deviation of the cosines among evenly spaced rows."""
    sample = unit_rows[:: max(1, len(unit_rows) // _SAMPLED_ROWS)]
    return np.maximum(np.std(sample @ sample.T, dtype=np.float64), 1e-12)
