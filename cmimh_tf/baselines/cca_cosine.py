"""The cosine of canonical variates: how well CCA retrieves before anything is made binary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.baselines.cca import DEFAULT_RIDGE
from cmimh_tf.baselines.hasher import check_width
from cmimh_tf.baselines.linear import LinearHash
from cmimh_tf.baselines.ridge import Ridge, fit_cca_with

if TYPE_CHECKING:
    from typing_extensions import Self


class CCACosine:
    """Real-valued CCA, an upper reference for the hashers that binarise its variates. It is not a `Hasher`.

    An item is its canonical variates, each weighted by its correlation, at unit length; two items are as
    similar as the dot product of these vectors, the cosine. With float32 it takes 32 times the memory of codes
    of as many bits.

    Reference: Gong, Ke, Isard and Lazebnik, "A Multi-View Embedding Space for Modeling Internet Images, Tags,
    and Their Semantics", IJCV 2014.

    Args:
        num_directions: the most canonical directions to use; there are at most as many as the narrower view
            is wide.
        ridge: regularisation of CCA, relative to the mean variance of a view, or "auto": see `choose_ridge`.
        seed: of the pairs held out for "auto".
    """

    _image_map: LinearHash | None = None
    _text_map: LinearHash | None = None

    def __init__(self, num_directions: int, *, ridge: Ridge = DEFAULT_RIDGE, seed: int = 0) -> None:
        if num_directions < 1:
            raise ValueError(f"`num_directions` must be positive. Received: num_directions={num_directions}.")
        self.num_directions = num_directions
        self.ridge = ridge
        self.seed = seed

    def fit(self, image: Any, text: Any) -> Self:
        """Learns from N pairs: image features [N, Di] and text features [N, Dt]. Returns itself."""
        cca = fit_cca_with(self.ridge, image, text, max_directions=self.num_directions, seed=self.seed)
        self._image_map = LinearHash(cca.image_mean, cca.image_directions * cca.correlations)
        self._text_map = LinearHash(cca.text_mean, cca.text_directions * cca.correlations)
        return self

    def project_images(self, image: Any) -> np.ndarray:
        """Unit vectors, float64 [N, K], of image features [N, Di]."""
        return _unit_vectors(self._image_map, image, "image")

    def project_texts(self, text: Any) -> np.ndarray:
        """Unit vectors, float64 [N, K], of text features [N, Dt]."""
        return _unit_vectors(self._text_map, text, "text")


def _unit_vectors(linear_map: LinearHash | None, features: Any, name: str) -> np.ndarray:
    if linear_map is None:
        raise RuntimeError("`fit` must be called before items can be projected.")
    variates = linear_map.project(check_width(features, len(linear_map.offset), name))
    # An item at the very mean has no direction: it stays 0, and is equally far from all.
    norms = np.linalg.norm(variates, axis=1, keepdims=True)
    return variates / np.where(norms > 0, norms, 1)
