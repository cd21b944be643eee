"""Packed codes: bit order, round trips and distances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cmimh_tf.codes import (
    check_code_length,
    hamming_distance,
    pack_bits,
    pack_bits_graph,
    unpack_codes,
)

bit_arrays = st.tuples(st.integers(0, 6), st.integers(1, 5)).flatmap(
    lambda shape: hnp.arrays(np.uint8, (shape[0], 8 * shape[1]), elements=st.integers(0, 1))
)


def test_least_significant_bit_comes_first():
    bits = [[1, *[0] * 7, *[0] * 7, 1], [0, 1, 1, *[0] * 5, *[1] * 8]]
    np.testing.assert_array_equal(pack_bits(bits), np.array([[1, 128], [6, 255]], np.uint8))


@settings(deadline=None)
@given(bit_arrays)
def test_unpacking_undoes_packing(bits):
    codes = pack_bits(bits)
    assert codes.dtype == np.uint8
    assert codes.shape == (len(bits), bits.shape[1] // 8)
    np.testing.assert_array_equal(unpack_codes(codes), bits)


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
def test_bits_of_any_number_type_pack_alike(dtype):
    bits = np.random.default_rng(0).integers(0, 2, (5, 24))
    np.testing.assert_array_equal(pack_bits(bits.astype(dtype)), pack_bits(bits))


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_graph_packs_as_numpy_does(dtype):
    tf = pytest.importorskip("tensorflow")
    bits = np.random.default_rng(0).integers(0, 2, (7, 24))
    packed = tf.function(pack_bits_graph)(tf.cast(bits, dtype))
    assert packed.dtype == tf.uint8
    np.testing.assert_array_equal(packed.numpy(), pack_bits(bits))


def test_graph_needs_a_known_multiple_of_eight():
    tf = pytest.importorskip("tensorflow")
    with pytest.raises(ValueError, match="Received: code_length=12"):
        pack_bits_graph(tf.zeros([2, 12]))


def test_distance_counts_differing_bits():
    a = np.array([[0b0000, 0], [0b1111, 255]], np.uint8)
    b = np.array([[0b0000, 0], [0b0101, 0], [0b1111, 254]], np.uint8)
    distances = hamming_distance(a, b)
    assert distances.dtype == np.uint16
    np.testing.assert_array_equal(distances, [[0, 2, 11], [12, 10, 1]])


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(0, 6), st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_distance_equals_comparing_bit_by_bit(num_bytes, num_a, num_b, seed):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 256, (num_a, num_bytes), np.uint8)
    b = rng.integers(0, 256, (num_b, num_bytes), np.uint8)
    expected = (unpack_codes(a)[:, None] != unpack_codes(b)[None]).sum(-1)
    np.testing.assert_array_equal(hamming_distance(a, b), expected)


def test_distance_in_several_blocks_is_the_same(monkeypatch):
    codes = np.random.default_rng(0).integers(0, 256, (50, 4), np.uint8)
    whole = hamming_distance(codes, codes)
    monkeypatch.setattr("cmimh_tf.codes._BLOCK_BYTES", 7 * 4 * 50)
    np.testing.assert_array_equal(hamming_distance(codes, codes), whole)


@pytest.mark.parametrize("code_length", [8, 16, np.int64(128)])
def test_good_code_lengths_come_back_as_int(code_length):
    assert check_code_length(code_length) == int(code_length)
    assert type(check_code_length(code_length)) is int


@pytest.mark.parametrize(
    ("code_length", "error"),
    [
        (12, ValueError),
        (0, ValueError),
        (-8, ValueError),
        (16.0, TypeError),
        (True, TypeError),
        (None, TypeError),
    ],
)
def test_bad_code_lengths_are_refused(code_length, error):
    message = rf"^`code_length` must be a positive multiple of 8\. Received: code_length={code_length}\.$"
    with pytest.raises(error, match=message):
        check_code_length(code_length)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: pack_bits(np.zeros(8)),
            ValueError,
            r"`bits` must have shape \[N, L\]. Received: bits.shape=\(8,\)",
        ),
        (lambda: pack_bits(np.zeros((2, 9))), ValueError, "Received: code_length=9"),
        (lambda: pack_bits([[0, 1, 0, -1] * 2]), ValueError, r"must be 0 or 1. Received: bits\[0, 3\]=-1"),
        (
            lambda: pack_bits(np.full((1, 8), np.nan)),
            ValueError,
            r"must be 0 or 1. Received: bits\[0, 0\]=nan",
        ),
        (lambda: unpack_codes(np.zeros((2, 4))), TypeError, "`codes` must be packed .* codes.dtype=float64"),
        (lambda: unpack_codes(np.zeros(4, np.uint8)), ValueError, r"`codes` must have shape \[N, L/8\]"),
        (lambda: unpack_codes(np.zeros((2, 4, 1), np.uint8)), ValueError, r"`codes` must have shape \[N, L/8\]"),
        (
            lambda: hamming_distance(np.zeros((2, 4), np.uint8), np.zeros((2, 2), np.uint8)),
            ValueError,
            r"`a` and `b` must have equal widths. Received: a.shape=\(2, 4\), b.shape=\(2, 2\)",
        ),
        (
            lambda: hamming_distance(np.zeros((2, 4), np.uint8), np.zeros((2, 4), np.int8)),
            TypeError,
            "`b` must be packed codes of type uint8. Received: b.dtype=int8",
        ),
    ],
)
def test_bad_arrays_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
