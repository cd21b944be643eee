"""Packed binary codes and their Hamming distance.

A code of L bits is stored in L/8 bytes, least significant bit first: bit `l` of a code is bit `l % 8`, of
value 2^(l % 8), of byte `l // 8`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

# Rows of the distance matrix are made in blocks, so that the float products stay below this many bytes.
_BLOCK_BYTES = 1 << 26


def check_code_length(code_length: Any) -> int:
    """Returns `code_length` as an int if it is a positive multiple of 8.

    Raises:
        TypeError: if it is not an integer.
        ValueError: if it is not positive, or not a multiple of 8.
    """
    message = f"`code_length` must be a positive multiple of 8. Received: code_length={code_length!r}."
    if isinstance(code_length, bool):
        raise TypeError(message)
    try:
        length = operator.index(code_length)
    except TypeError as error:
        raise TypeError(message) from error
    if length <= 0 or length % 8:
        raise ValueError(message)
    return length


def check_codes(codes: Any, name: str = "codes") -> np.ndarray:
    """Returns `codes` as a contiguous array if it is uint8 of shape [N, L/8] with at least one byte per row.

    Args:
        codes: the value to check.
        name: the argument's name, for the message.

    Raises:
        TypeError: if the type is not uint8.
        ValueError: if the shape is wrong.
    """
    codes = np.asarray(codes)
    if codes.dtype != np.uint8:
        raise TypeError(f"`{name}` must be packed codes of type uint8. Received: {name}.dtype={codes.dtype}.")
    if codes.ndim != 2 or codes.shape[1] == 0:
        raise ValueError(f"`{name}` must have shape [N, L/8]. Received: {name}.shape={codes.shape}.")
    return np.ascontiguousarray(codes)


def pack_bits(bits: Any) -> np.ndarray:
    """Packs bits into codes.

    Args:
        bits: [N, L] array of 0 and 1 (bool, integer or float).

    Returns:
        uint8 array [N, L/8], least significant bit first.

    Raises:
        ValueError: if the shape is wrong, L is not a positive multiple of 8, or a value is neither 0 nor 1.
    """
    bits = np.asarray(bits)
    if bits.ndim != 2:
        raise ValueError(f"`bits` must have shape [N, L]. Received: bits.shape={bits.shape}.")
    check_code_length(bits.shape[1])
    ones = bits == 1
    wrong = ~(ones | (bits == 0))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(f"`bits` must be 0 or 1. Received: bits[{row}, {column}]={bits[row, column]}.")
    return np.packbits(ones, axis=1, bitorder="little")


def pack_bits_graph(bits: tf.Tensor) -> tf.Tensor:
    """`pack_bits` for TensorFlow graphs; the values are taken to be 0 or 1 and are not checked.

    Args:
        bits: [N, L] tensor of 0 and 1 (bool, integer or float), L known when the graph is traced.

    Returns:
        uint8 tensor [N, L/8], least significant bit first.
    """
    import tensorflow as tf

    num_bytes = check_code_length(bits.shape[-1]) // 8
    octets = tf.reshape(tf.cast(bits, tf.int32), [-1, num_bytes, 8])
    place_values = tf.constant([1 << place for place in range(8)], tf.int32)
    return tf.cast(tf.reduce_sum(octets * place_values, axis=-1), tf.uint8)


def unpack_codes(codes: Any) -> np.ndarray:
    """Unpacks uint8 codes [N, L/8] into their bits, a uint8 array [N, L] of 0 and 1."""
    return np.unpackbits(check_codes(codes), axis=1, bitorder="little")


def hamming_distance(a: Any, b: Any) -> np.ndarray:
    """Numbers of differing bits between all pairs of codes.

    With bits as signs -1 and 1 the distance is (L - a . b) / 2: one matrix product, exact in float32.

    Args:
        a: uint8 array [N, L/8].
        b: uint8 array [M, L/8].

    Returns:
        uint16 array [N, M].
    """
    a, b = check_codes(a, "a"), check_codes(b, "b")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"`a` and `b` must have equal widths. Received: a.shape={a.shape}, b.shape={b.shape}.")
    code_length = 8 * a.shape[1]
    columns = _signs(b).T
    distances = np.empty((len(a), len(b)), np.uint16)
    rows = max(1, _BLOCK_BYTES // (4 * max(1, len(b))))
    for start in range(0, len(a), rows):
        products = _signs(a[start : start + rows]) @ columns
        distances[start : start + rows] = (code_length - products) / 2
    return distances


def _signs(codes: np.ndarray) -> np.ndarray:
    return unpack_codes(codes).astype(np.float32) * 2 - 1
