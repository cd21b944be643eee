"""The interface of every baseline, checks of its inputs, and the scaling of features."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cmimh_tf.codes import check_code_length

if TYPE_CHECKING:
    from typing_extensions import Self


FittedPart = TypeVar("FittedPart")


class Hasher(abc.ABC):
    """Learns from paired features, without labels, to hash either kind of feature.

    Example:

        hasher = CVH(code_length=32).fit(image_features, text_features)
        distances = hamming_distance(hasher.hash_images(queries), hasher.hash_texts(database))

    Args:
        code_length: number of bits, a positive multiple of 8.
        seed: of every random choice that the method makes.
    """

    def __init__(self, code_length: int, *, seed: int = 0) -> None:
        self.code_length = check_code_length(code_length)
        self.seed = seed

    @abc.abstractmethod
    def fit(self, image: Any, text: Any) -> Self:
        """Learns from N pairs.

        Args:
            image: [N, Di] image features.
            text: [N, Dt] text features; row i is the pair of row i of `image`.

        Returns:
            The hasher itself.
        """

    @abc.abstractmethod
    def hash_images(self, image: Any) -> np.ndarray:
        """Packed codes, uint8 [N, L/8], of image features [N, Di]."""

    @abc.abstractmethod
    def hash_texts(self, text: Any) -> np.ndarray:
        """Packed codes, uint8 [N, L/8], of text features [N, Dt]."""


def check_features(features: Any, name: str) -> np.ndarray:
    """Returns `features` as an array if it is a finite, numeric [N, D] matrix.

    Args:
        features: the argument to check.
        name: the argument's name, for the message.

    Raises:
        TypeError: if the values are not real numbers.
        ValueError: if the shape is wrong, or a value is not finite; the message names the first such row.
    """
    features = np.asarray(features)
    if features.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` must hold real numbers. Received: {name}.dtype={features.dtype}.")
    if features.ndim != 2 or features.shape[1] == 0:
        raise ValueError(f"`{name}` must have shape [N, D]. Received: {name}.shape={features.shape}.")
    finite_rows = np.isfinite(features).all(axis=1)
    if not finite_rows.all():
        row = int(np.argmin(finite_rows))
        raise ValueError(f"`{name}` must be finite. Received: {name}[{row}] with NaN or infinity.")
    return features


def check_width(features: Any, width: int, name: str) -> np.ndarray:
    """Returns `features` as an array if it passes `check_features` and has `width` columns."""
    features = check_features(features, name)
    if features.shape[1] != width:
        raise ValueError(
            f"`{name}` must have as many columns as in `fit`, {width}. Received: {name}.shape={features.shape}."
        )
    return features


def check_pairs(image: Any, text: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns both matrices if each passes `check_features`, varies, and they have as many rows, at least 2."""
    image, text = check_features(image, "image"), check_features(text, "text")
    if len(image) != len(text) or len(image) < 2:
        raise ValueError(
            "`image` and `text` must have the same number of rows, at least 2. "
            f"Received: image.shape={image.shape}, text.shape={text.shape}."
        )
    for name, view in (("image", image), ("text", text)):
        if (view == view[0]).all():
            raise ValueError(f"`{name}` must have rows that differ. Received: {len(view)} equal rows.")
    return image, text


def check_fitted(part: FittedPart | None) -> FittedPart:
    """Returns `part`, which `fit` sets.

    Raises:
        RuntimeError: if it is None because `fit` was not called.
    """
    if part is None:
        raise RuntimeError("`fit` must be called before a hasher can hash.")
    return part


@dataclass(frozen=True)
class CentredView:
    """x -> (x - mean) / scale, after which the training rows have a root-mean-square norm of 1.

    Without it, objectives that add terms of both views would depend on the units of each view.

    Attributes:
        mean: float64 [D].
        scale: root-mean-square distance of the training rows from their mean.
    """

    mean: np.ndarray
    scale: float

    @classmethod
    def fit(cls, features: np.ndarray) -> CentredView:
        """The mean and scale of features [N, D], which must not all be equal."""
        mean = features.mean(axis=0, dtype=np.float64)
        return cls(mean, float(np.sqrt(np.var(features, axis=0, dtype=np.float64).sum())))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Centred and scaled features, float64 [N, D]."""
        return (features - self.mean) / self.scale
