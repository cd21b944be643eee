"""What a set of codes looks like without any query: dependence between bits, balance, saturation."""

from __future__ import annotations

from typing import Any

import numpy as np

from cmimh_tf.codes import check_codes, unpack_codes

_ROWS_PER_BLOCK = 1 << 16


def correlation_mse(codes: Any) -> float:
    """The mean squared Pearson correlation of two bits: 0 if uncorrelated, 1 if all bits say the same.

        mean over bits l != m of corr(l, m)^2

    which is the mean squared difference of the correlation matrix from the identity, off the diagonal. A bit
    that never changes has no correlation: its pairs are left out, and the result is NaN if fewer than two
    bits change. Read it beside `constant_bits`, or a nearly collapsed code may look like an independent one.

    Args:
        codes: uint8 [N, L/8] packed codes.
    """
    num_rows, ones, together = _count_bits(codes)
    # With n1 ones in a bit and n11 ones together, n^2 cov = n * n11 - n1 * n1' and n^2 var = n1 * (n - n1).
    variances = ones * (num_rows - ones)
    changing = variances > 0
    if changing.sum() < 2:
        return float("nan")
    covariances = (num_rows * together - np.outer(ones, ones))[np.ix_(changing, changing)]
    squares = covariances**2 / np.outer(variances[changing], variances[changing])
    pairs = ~np.eye(len(squares), dtype=bool)
    return float(squares[pairs].mean())


def bit_balance(codes: Any) -> float:
    """How evenly bits are 0 and 1: 1 if each is one half of the time, 0 if none ever changes.

        mean over bits of 1 - 2 * abs(share of ones - 0.5)

    Args:
        codes: uint8 [N, L/8] packed codes.
    """
    num_rows, ones, _ = _count_bits(codes)
    return float(np.mean(1 - 2 * np.abs(ones / num_rows - 0.5)))


def constant_bits(codes: Any) -> int:
    """The number of bits that are the same in all codes, uint8 [N, L/8]."""
    num_rows, ones, _ = _count_bits(codes)
    return int(np.sum((ones == 0) | (ones == num_rows)))


def saturated_share(probs: Any, margin: float = 0.01) -> float:
    """The share of `probs` (any shape) within [0, margin] or [1 - margin, 1].

    Sampling such a bit is all but deterministic, so that the network can no longer explore its other value.
    """
    probs = np.asarray(probs, np.float64)
    if not 0 <= margin < 0.5:
        raise ValueError(f"`margin` must be in [0, 0.5). Received: margin={margin}.")
    if probs.size == 0:
        raise ValueError(f"`probs` must not be empty. Received: probs.shape={probs.shape}.")
    # Written so that a NaN is refused too.
    if not ((probs >= 0) & (probs <= 1)).all():
        raise ValueError(f"`probs` must be in [0, 1]. Received: from {probs.min()} to {probs.max()}.")
    return float(((probs <= margin) | (probs >= 1 - margin)).mean())


def total_correlation_estimate(discriminator_logits: Any) -> float:
    """The total correlation of the bits, in nats, by the density-ratio trick: the mean logit.

    A discriminator trained to tell samples of p(h) from samples of the product of its marginals has, at its
    optimum, the logit log p(h) - sum over l of log p(h_l), whose mean under p(h) is TC(h). An imperfect
    discriminator gives another number, which may be below 0.

    Args:
        discriminator_logits: logits, of any shape, on samples of p(h): not on shuffled ones.
    """
    logits = np.asarray(discriminator_logits, np.float64)
    if logits.size == 0:
        raise ValueError(f"`discriminator_logits` must not be empty. Received: shape={logits.shape}.")
    return float(logits.mean())


def _count_bits(codes: Any) -> tuple[int, np.ndarray, np.ndarray]:
    """The number of codes, and float64 counts of ones: in each bit, [L], and in two together, [L, L]."""
    codes = check_codes(codes)
    if len(codes) == 0:
        raise ValueError(f"`codes` must have at least one row. Received: codes.shape={codes.shape}.")
    together = np.zeros((8 * codes.shape[1],) * 2)
    for start in range(0, len(codes), _ROWS_PER_BLOCK):
        bits = unpack_codes(codes[start : start + _ROWS_PER_BLOCK]).astype(np.float32)
        together += bits.T @ bits  # At most 2^16 a block: exact in float32.
    return len(codes), np.diagonal(together).copy(), together
