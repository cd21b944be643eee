"""Vectors of the pictures and captions of a few pairs, in whatever process a worker runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.features.registry import make_image_features, make_text_features

if TYPE_CHECKING:
    from cmimh_tf.features.batches import VectorComputer


def compute_vectors(
    rows: Sequence[Mapping[str, Any]], image_features: str, text_features: str
) -> dict[str, np.ndarray]:
    """`image` of the rows' `image_bytes` and `text` of their `caption`, float32 [rows, dim].

    Args:
        rows: features of tf.Examples.
        image_features, text_features: names of `cmimh_tf.features.registry`; "" leaves one out.

    Raises:
        ValueError: if a picture cannot be decoded.
    """
    computer = _computer(image_features, text_features)
    vectors = {}
    if image_features:
        vectors["image"] = np.concatenate(list(computer.images([row["image_bytes"] for row in rows])))
    if text_features:
        vectors["text"] = np.concatenate(list(computer.texts([row["caption"] for row in rows])))
    return vectors


@functools.lru_cache(maxsize=1)
def _computer(image_features: str, text_features: str) -> VectorComputer:
    """One a process, whatever Beam copies."""
    from cmimh_tf.features.batches import VectorComputer

    return VectorComputer(
        make_image_features(image_features) if image_features else None,
        make_text_features(text_features) if text_features else None,
    )
