"""Statistics of codes in closed form."""

import itertools

import numpy as np
import pytest

from cmimh_tf.codes import pack_bits
from cmimh_tf.metrics import (
    bit_balance,
    constant_bits,
    correlation_mse,
    saturated_share,
    total_correlation_estimate,
)

ALL_BYTES = np.arange(256, dtype=np.uint8)[:, None]


def test_identical_bits_have_correlation_one():
    assert correlation_mse(np.array([[0], [255], [255]], np.uint8)) == pytest.approx(1)


def test_opposite_bits_have_correlation_one_too():
    assert correlation_mse(np.array([[0b01010101], [0b10101010]], np.uint8)) == pytest.approx(1)


def test_independent_bits_have_correlation_zero():
    assert correlation_mse(ALL_BYTES) == 0


def test_one_correlated_pair_by_hand():
    # Bits 0 and 1 have a correlation of 1/sqrt(3); the other six are independent of all.
    pairs = [(0, 0), (1, 1), (1, 1), (0, 1)]
    bits = [[*pair, *rest] for pair in pairs for rest in itertools.product([0, 1], repeat=6)]
    assert correlation_mse(pack_bits(bits)) == pytest.approx((1 / 3) / (8 * 7 / 2))


def test_equals_numpy():
    rng = np.random.default_rng(0)
    bits = rng.random((400, 16)) < rng.random(16) * 0.5 + 0.25
    correlations = np.corrcoef(bits.T)
    expected = (correlations[~np.eye(16, dtype=bool)] ** 2).mean()
    assert correlation_mse(pack_bits(bits)) == pytest.approx(expected)


def test_counting_in_several_blocks_is_the_same(monkeypatch):
    codes = np.random.default_rng(0).integers(0, 256, (100, 2), np.uint8)
    whole = correlation_mse(codes), bit_balance(codes)
    monkeypatch.setattr("cmimh_tf.metrics.code_statistics._ROWS_PER_BLOCK", 7)
    assert (correlation_mse(codes), bit_balance(codes)) == whole


def test_constant_bits_are_left_out_and_counted():
    # The upper four bits never change; the lower four are two pairs of equal ones: 2 pairs of 6 correlate.
    codes = np.array([[0b0000], [0b0011], [0b1100], [0b1111]], np.uint8) | np.uint8(0b10100000)
    assert constant_bits(codes) == 4
    assert correlation_mse(codes) == pytest.approx(2 / 6)


def test_a_collapsed_code_has_no_correlation():
    codes = np.full((10, 2), 0b101, np.uint8)
    assert np.isnan(correlation_mse(codes))
    assert constant_bits(codes) == 16
    assert bit_balance(codes) == 0


def test_balance():
    assert bit_balance(ALL_BYTES) == 1
    # One code in four is all ones: each bit has a share of 1/4, half way between balanced and constant.
    assert bit_balance(np.array([[255], [0], [0], [0]], np.uint8)) == pytest.approx(1 / 2)
    assert bit_balance(np.array([[0], [255], [255], [255]], np.uint8)) == pytest.approx(1 / 2)


def test_saturated_share_includes_the_ends_of_both_intervals():
    probs = np.array([[0.0, 0.01, 0.011, 0.5], [0.989, 0.99, 1.0, 0.7]])
    assert saturated_share(probs) == 4 / 8
    assert saturated_share(probs.astype(np.float32)) == 4 / 8
    assert saturated_share(probs, margin=0.4) == 7 / 8


def test_total_correlation_is_the_mean_logit():
    assert total_correlation_estimate(np.array([[1.0], [-0.5], [2.5]])) == pytest.approx(1.0)


def test_total_correlation_of_the_best_discriminator():
    # Two equal fair bits: p(h) is 1/2 on (0,0) and (1,1), the product of marginals 1/4, so TC = log 2.
    samples = [(0, 0), (1, 1)]
    logits = [np.log(0.5) - np.log(0.5 * 0.5) for _ in samples]
    assert total_correlation_estimate(logits) == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: correlation_mse(ALL_BYTES[:0]), ValueError, "`codes` must have at least one row"),
        (
            lambda: bit_balance(ALL_BYTES.astype(float)),
            TypeError,
            "`codes` must be packed codes of type uint8",
        ),
        (lambda: saturated_share([]), ValueError, "`probs` must not be empty"),
        (
            lambda: saturated_share([0.5, 1.5]),
            ValueError,
            r"`probs` must be in \[0, 1\]. Received: from 0.5 to 1.5",
        ),
        (lambda: saturated_share([0.5, np.nan]), ValueError, r"`probs` must be in \[0, 1\]"),
        (lambda: saturated_share([0.5], margin=0.5), ValueError, r"`margin` must be in \[0, 0.5\)"),
        (lambda: saturated_share([0.5], margin=0.7), ValueError, r"`margin` must be in \[0, 0.5\)"),
        (lambda: total_correlation_estimate([]), ValueError, "`discriminator_logits` must not be empty"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
