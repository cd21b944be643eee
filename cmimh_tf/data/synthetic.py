"""Synthetic pairs with known factors: some are shared by both modalities, others are private to one of them.

For pair n with classes c of a random set S_n,

    shared_n        = sum of centre_c over S_n / sqrt(|S_n|) + class_spread * e
    image_n         = f([shared_n, image_private_n]) + noise * e'
    text_n          = g([shared_n, text_private_n]) + noise * e''

with standard normal centres, private factors and e, and fixed random maps f and g, which are linear or have one tanh
layer. A code that maximises I(image code; text code) encodes `shared` and ignores the private factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.data.pairs import PairedData


@dataclass(frozen=True, eq=False)
class SyntheticPairs:
    """Pairs and the factors that made them.

    Args:
        data: the N pairs; the labels are their classes, which depend on the shared factors only.
        shared: float32 [N, shared_dim], the factors of both modalities.
        image_private: float32 [N, private_dim], the factors of images only.
        text_private: float32 [N, private_dim], the factors of texts only.
    """

    data: PairedData
    shared: np.ndarray
    image_private: np.ndarray
    text_private: np.ndarray


def make_synthetic_factors(
    num_pairs: int,
    *,
    seed: int,
    num_classes: int = 8,
    labels_per_pair: int = 1,
    shared_dim: int = 8,
    private_dim: int = 8,
    image_dim: int = 64,
    text_dim: int = 32,
    class_spread: float = 0.5,
    private_scale: float = 1.0,
    noise: float = 0.1,
    nonlinear: bool = False,
) -> SyntheticPairs:
    """Makes pairs and returns them with their factors. The maps and centres depend on the seed, not on `num_pairs`.

    Args:
        num_pairs: N, at least 1.
        seed: a non-negative integer.
        num_classes: C, the number of columns of the labels.
        labels_per_pair: the number of labels of each pair, at most C.
        shared_dim: dimensions of the shared factors.
        private_dim: dimensions of the private factors of each modality; 0 for none.
        image_dim: Di.
        text_dim: Dt.
        class_spread: standard deviation of the pairs of a class around its centre; centres are about 1 apart in each
            dimension.
        private_scale: standard deviation of the private factors; that of the shared factors is about 1.
        noise: standard deviation of the noise added to the vectors, whose own is about 1.
        nonlinear: whether the maps have a hidden tanh layer.
    """
    counts = {"num_pairs": num_pairs, "num_classes": num_classes, "shared_dim": shared_dim}
    counts |= {"image_dim": image_dim, "text_dim": text_dim, "labels_per_pair": labels_per_pair}
    for name, count in counts.items():
        _check_least(count, name, 1, int)
    for name, count in {"seed": seed, "private_dim": private_dim}.items():
        _check_least(count, name, 0, int)
    for name, scale in {"class_spread": class_spread, "private_scale": private_scale, "noise": noise}.items():
        _check_least(scale, name, 0, float)
    if labels_per_pair > num_classes:
        raise ValueError(
            "`labels_per_pair` must be at most `num_classes`. "
            f"Received: labels_per_pair={labels_per_pair}, num_classes={num_classes}."
        )
    world, image_map, text_map, rows = np.random.default_rng(seed).spawn(4)
    centres = _normal(world, num_classes, shared_dim)
    chosen = np.argsort(rows.random((num_pairs, num_classes)), axis=1)[:, :labels_per_pair]
    labels = np.zeros((num_pairs, num_classes), np.uint8)
    np.put_along_axis(labels, chosen, 1, axis=1)
    shared = labels @ centres / np.float32(np.sqrt(labels_per_pair))
    shared += class_spread * _normal(rows, num_pairs, shared_dim)
    image_private = _normal(rows, num_pairs, private_dim)
    text_private = _normal(rows, num_pairs, private_dim)
    image = _random_map(image_map, [shared, private_scale * image_private], image_dim, nonlinear)
    text = _random_map(text_map, [shared, private_scale * text_private], text_dim, nonlinear)
    image += noise * _normal(rows, num_pairs, image_dim)
    text += noise * _normal(rows, num_pairs, text_dim)
    return SyntheticPairs(PairedData(image, text, labels), shared, image_private, text_private)


def make_synthetic(num_pairs: int, *, seed: int, **options: Any) -> PairedData:
    """The pairs of `make_synthetic_factors` without their factors; it documents the options."""
    return make_synthetic_factors(num_pairs, seed=seed, **options).data


def _normal(generator: np.random.Generator, num_rows: int, num_columns: int) -> np.ndarray:
    return generator.standard_normal((num_rows, num_columns), dtype=np.float32)


def _random_map(generator: np.random.Generator, factors: list[np.ndarray], out_dim: int, nonlinear: bool) -> np.ndarray:
    """A random map of the factors' columns to [N, out_dim], scaled to a variance of about 1."""
    values = np.concatenate(factors, axis=1)
    if nonlinear:
        values = np.tanh(2 * _random_map(generator, [values], 2 * values.shape[1], nonlinear=False))
    in_dim = values.shape[1]
    return values @ (_normal(generator, in_dim, out_dim) / np.float32(np.sqrt(in_dim)))


def _check_least(value: Any, name: str, least: int, kind: type) -> None:
    accepted = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    rule = "an integer" if kind is int else "a number"
    message = f"`{name}` must be {rule} of at least {least}. Received: {name}={value!r}."
    if isinstance(value, bool) or not isinstance(value, accepted):
        raise TypeError(message)
    if not least <= value < np.inf:
        raise ValueError(message)
