"""Centring, principal components and scaling of vectors: (x - mean) P * scale.

P contains the first principal components of the training rows if these are wider than a limit, and is the identity
otherwise. The scale is input_norm / sqrt(sum of the variances). The training rows then have a root-mean-square norm of
`input_norm`, because the mean squared norm of centred rows is the sum of their variances. The Transform component
computes the statistics with Beam and then calls the functions below; `Projection` computes them in one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cmimh_tf.files import write_npz

# A principal component with a smaller share of the variance is a rounding error.
_LEAST_VARIANCE_SHARE = 1e-10
_BLOCK_ROWS = 4096
_STEPS_PER_UNIT = 2.0**20


def rounded(components: tf.Tensor) -> tf.Tensor:
    """Rounds to about 1e-6. The digits beyond 1e-13 depend on the order in which rows were added, which differs between
    numbers of workers; a training that starts from other last bits ends in another model."""
    return tf.round(components * _STEPS_PER_UNIT) / _STEPS_PER_UNIT


def with_fixed_signs(components: tf.Tensor) -> tf.Tensor:
    """Flips columns so that the entry of largest magnitude is positive: the sign of an eigenvector is arbitrary."""
    rows = tf.argmax(tf.abs(components), axis=0)
    largest = tf.gather(tf.transpose(components), rows, batch_dims=1)
    return components * tf.where(largest < 0, tf.cast(-1.0, components.dtype), tf.cast(1.0, components.dtype))


def scale_rows(
    vectors: tf.Tensor, mean: tf.Tensor, variances: tf.Tensor, input_norm: float | None, *, is_projected: bool
) -> tf.Tensor:
    """The last step of the formula.

    Args:
        vectors: float64 [B, units], projected or not.
        mean, variances: float64 [units], statistics of the training rows in the same form.
        input_norm: the target root-mean-square norm; None neither centres nor scales.
        is_projected: whether the columns are principal components. With fewer training rows than components, the last
            components are arbitrary: 0 on all training rows and noise on others. They are set to 0.

    Returns:
        float32 [B, units].
    """
    total = tf.reduce_sum(variances)
    if input_norm is not None:
        vectors = (vectors - mean) * (input_norm * tf.math.rsqrt(total))
    if is_projected:
        vectors = vectors * tf.cast(variances > _LEAST_VARIANCE_SHARE * total, tf.float64)
    return tf.cast(vectors, tf.float32)


class Projection(tf.Module):
    """The formula above with fitted values, equal to those of the Transform component.

    Args:
        mean: float64 [width], mean of the training rows.
        components: float64 [width, units], or None for the identity.
        variances: float64 [units], variances of the projected training rows.
        input_norm: see `scale_rows`.

    Example:
        >>> projection = Projection.fit(data.image[splits.train], max_units=1024)
        >>> image = projection(data.image).numpy()
    """

    def __init__(
        self, mean: np.ndarray, components: np.ndarray | None, variances: np.ndarray, input_norm: float | None = None
    ):
        super().__init__(name="projection")
        self.input_norm = input_norm
        self._mean = tf.Variable(mean, trainable=False, dtype=tf.float64)
        self._components = None if components is None else tf.Variable(components, trainable=False, dtype=tf.float64)
        self._variances = tf.Variable(variances, trainable=False, dtype=tf.float64)
        self.dim = len(variances)

    @classmethod
    def fit(cls, vectors: np.ndarray, max_units: int | None, *, input_norm: float | None = None) -> Projection:
        """Fits on training rows.

        Args:
            vectors: [N, width], only the training rows.
            max_units: the largest width of the result; None for no limit.
            input_norm: see `scale_rows`. The default is None because the model scales its inputs.

        Raises:
            ValueError: if there are no rows, or `max_units` is not positive.
        """
        if vectors.ndim != 2 or not len(vectors):
            raise ValueError(f"`vectors` must have shape [N, width]. Received: vectors.shape={vectors.shape}.")
        if max_units is not None and max_units < 1:
            raise ValueError(f"`max_units` must be positive. Received: max_units={max_units}.")
        width = vectors.shape[1]
        # In float64: sums over thousands of rows are too inaccurate in float32 for eigenvectors.
        mean = sum(block.sum(axis=0) for block in _blocks(vectors)) / len(vectors)
        if max_units is None or width <= max_units:
            variances = sum(((block - mean) ** 2).sum(axis=0) for block in _blocks(vectors)) / len(vectors)
            return cls(mean, None, variances, input_norm)
        covariance = sum((block - mean).T @ (block - mean) for block in _blocks(vectors)) / len(vectors)
        values, components = np.linalg.eigh(covariance)
        largest_first = slice(None, -max_units - 1, -1)
        signed = rounded(with_fixed_signs(tf.constant(components[:, largest_first]))).numpy()
        return cls(mean, signed, np.maximum(values[largest_first], 0.0), input_norm)

    def __call__(self, vectors: Any) -> tf.Tensor:
        """[B, width] of any float type -> float32 [B, dim]."""
        vectors = tf.cast(vectors, tf.float64)
        if self._components is None:
            if self.input_norm is None:
                return tf.cast(vectors, tf.float32)
            return scale_rows(vectors, self._mean, self._variances, self.input_norm, is_projected=False)
        projected = tf.matmul(vectors - self._mean, self._components)
        return scale_rows(
            projected, tf.zeros_like(self._variances), self._variances, self.input_norm, is_projected=True
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the fitted values to an .npz."""
        optional = {"components": self._components, "input_norm": self.input_norm}
        write_npz(
            path,
            mean=self._mean.numpy(),
            variances=self._variances.numpy(),
            **{name: np.asarray(value) for name, value in optional.items() if value is not None},
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Projection:
        """Reads a file written by `save`."""
        with np.load(path, allow_pickle=False) as archive:
            numbers = {name: archive[name] for name in archive.files}
        norm = numbers.get("input_norm")
        return cls(
            numbers["mean"], numbers.get("components"), numbers["variances"], None if norm is None else float(norm)
        )


def _blocks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(vectors), _BLOCK_ROWS):
        yield vectors[start : start + _BLOCK_ROWS].astype(np.float64)
