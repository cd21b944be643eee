"""PDH: bits that a large-margin classifier can predict from either view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from cmimh_tf.baselines.cca import DEFAULT_RIDGE
from cmimh_tf.baselines.centred_view import CentredView
from cmimh_tf.baselines.cvh import CVH
from cmimh_tf.baselines.hasher import check_pairs
from cmimh_tf.baselines.linear import LinearHash, LinearHasher, to_signs
from cmimh_tf.baselines.linear_svm import fit_linear_svms
from cmimh_tf.baselines.rounds import count_rounds
from cmimh_tf.ops.hamming import unpack_codes

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_COST = 0.1
DEFAULT_ROUNDS = 5
# Singular values below this share of the largest are rounding errors of a rank deficient view.
_LEAST_SINGULAR_VALUE = 1e-6


class PDH(LinearHasher):
    """Predictable dual-view hashing.

    The bits of the texts start as those of `CVH`. In each round, for each bit,

        a linear SVM on the images learns the bit of the texts, and its predictions become the images' bit;
        a linear SVM on the texts learns the bit of the images;

    and between rounds the margins of the texts are decorrelated across bits (`decorrelate`) before their signs
    are the texts' bits again. The last machines of each view are its hash functions. They have no bias: each
    plane passes through the training mean of its view, which keeps bits about balanced.

    A `code_length` above the width of the narrower view is possible: CVH then starts the further bits from
    random combinations of variates, and bits are decorrelated as far as the rank of the margins allows.

    Reference: Rastegari, Choi, Fakhraei, Daume and Davis, "Predictable Dual-View Hashing", ICML 2013.

    Args:
        code_length: number of bits, a positive multiple of 8.
        cost: of a squared violation of the margin, with features of unit root-mean-square norm.
        rounds: number of alternations.
        ridge: of the CCA that the bits start from.
        seed: of the random combinations; without effect where there are enough canonical directions.
    """

    def __init__(
        self,
        code_length: int,
        *,
        cost: float = DEFAULT_COST,
        rounds: int = DEFAULT_ROUNDS,
        ridge: float = DEFAULT_RIDGE,
        seed: int = 0,
    ) -> None:
        super().__init__(code_length, seed=seed)
        if not cost > 0:
            raise ValueError(f"`cost` must be positive. Received: cost={cost}.")
        if rounds < 1:
            raise ValueError(f"`rounds` must be at least 1. Received: rounds={rounds}.")
        self.cost = cost
        self.rounds = rounds
        self.ridge = ridge

    def fit(self, image: Any, text: Any) -> Self:
        image, text = check_pairs(image, text)
        start = CVH(self.code_length, ridge=self.ridge, seed=self.seed).fit(image, text)
        text_signs = unpack_codes(start.hash_texts(text)) * 2.0 - 1
        image_view, text_view = CentredView.fit(image), CentredView.fit(text)
        image_rows, text_rows = image_view(image), text_view(text)
        image_weights, text_weights = (np.zeros((view.shape[1], self.code_length)) for view in (image, text))
        for _ in count_rounds(self.rounds, "PDH, round"):
            image_weights = fit_linear_svms(image_rows, text_signs, cost=self.cost, start=image_weights)
            image_signs = to_signs(image_rows @ image_weights)
            text_weights = fit_linear_svms(text_rows, image_signs, cost=self.cost, start=text_weights)
            text_signs = to_signs(decorrelate(text_rows @ text_weights))
        self._image_hash = LinearHash(image_view.mean, image_weights)
        self._text_hash = LinearHash(text_view.mean, text_weights)
        return self


def decorrelate(margins: np.ndarray) -> np.ndarray:
    """The uncorrelated variables that are nearest to given ones.

    With the columns of M centred and of unit norm, it is the matrix Q with Q'Q = I that minimises ||Q - M||^2:
    Q = U V' from the singular value decomposition U S V' of M. Unlike eigenvectors, column l of Q still stands
    for column l of M. Where M has rank K below its number of columns, Q'Q is a projection of rank K instead.

    Args:
        margins: [N, L].

    Returns:
        [N, L] of unit variance and, where the rank allows it, without correlation.
    """
    centred = margins - margins.mean(axis=0)
    # A column that does not vary stays 0.
    norms = np.linalg.norm(centred, axis=0)
    left, values, right = scipy.linalg.svd(centred / np.where(norms > 0, norms, 1), full_matrices=False)
    kept = values > _LEAST_SINGULAR_VALUE * max(values[0], np.finfo(float).tiny)
    return np.sqrt(len(margins)) * left[:, kept] @ right[kept]
