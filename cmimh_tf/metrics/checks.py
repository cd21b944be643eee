"""Checks of the arguments of the measures: packed codes, 0/1 labels, cutoffs and seeds."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from cmimh_tf.codes import check_codes

# Distances are kept doubled in 16 bits, with relevance in the lowest one.
_MAX_CODE_LENGTH = 32_760


def check_code_pair(query_codes: Any, database_codes: Any, names: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns two non-empty arrays of packed codes of one width.

    Args:
        query_codes: uint8 [Q, L/8].
        database_codes: uint8 [M, L/8].
        names: the two arguments' names, for the message.
    """
    codes = check_codes(query_codes, names[0]), check_codes(database_codes, names[1])
    for name, array in zip(names, codes, strict=True):
        if len(array) == 0:
            raise ValueError(f"`{name}` must have at least one row. Received: {name}.shape={array.shape}.")
    if codes[0].shape[1] != codes[1].shape[1]:
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must have equal widths. "
            f"Received: {names[0]}.shape={codes[0].shape}, {names[1]}.shape={codes[1].shape}."
        )
    if 8 * codes[0].shape[1] > _MAX_CODE_LENGTH:
        raise ValueError(
            f"`{names[0]}` must have at most {_MAX_CODE_LENGTH} bits. Received: {8 * codes[0].shape[1]} bits."
        )
    return codes


def check_labels(labels: Any, num_rows: int, name: str) -> np.ndarray:
    """Returns `labels` as a bool array [num_rows, C] if they are 0/1, one row per item. A row may be all 0."""
    labels = np.asarray(labels)
    if labels.ndim != 2 or labels.shape[1] == 0:
        raise ValueError(f"`{name}` must have shape [N, C] with C > 0. Received: {name}.shape={labels.shape}.")
    if len(labels) != num_rows:
        raise ValueError(
            f"`{name}` must have one row for each code, {num_rows}. Received: {name}.shape={labels.shape}."
        )
    if labels.dtype == np.bool_:
        return labels
    if labels.dtype.kind not in "iuf":
        raise TypeError(f"`{name}` must be 0/1 numbers. Received: {name}.dtype={labels.dtype}.")
    present = labels == 1
    wrong = ~(present | (labels == 0))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(f"`{name}` must be 0 or 1. Received: {name}[{row}, {column}]={labels[row, column]}.")
    return present


def check_cutoff(k: Any, name: str = "k") -> int:
    """Returns `k` as an int if it is a positive integer."""
    message = f"`{name}` must be a positive integer. Received: {name}={k!r}."
    try:
        cutoff = operator.index(k)
    except TypeError as error:
        raise TypeError(message) from error
    if isinstance(k, bool) or cutoff <= 0:
        raise ValueError(message)
    return cutoff


def check_cutoffs(ks: Any, name: str = "ks") -> tuple[int, ...]:
    """Returns `ks` as a tuple of ints if it holds positive integers, at least one."""
    if not isinstance(ks, Iterable) or isinstance(ks, str):
        raise TypeError(f"`{name}` must be a sequence of positive integers. Received: {name}={ks!r}.")
    cutoffs = tuple(check_cutoff(k, f"{name}[{position}]") for position, k in enumerate(ks))
    if not cutoffs:
        raise ValueError(f"`{name}` must hold at least one positive integer. Received: {name}={ks!r}.")
    return cutoffs


def check_seed(seed: Any) -> int:
    """Returns `seed` as an int if it is a non-negative integer: an unseeded order cannot be repeated."""
    message = f"`seed` must be a non-negative integer. Received: seed={seed!r}."
    try:
        value = operator.index(seed)
    except TypeError as error:
        raise TypeError(message) from error
    if value < 0:
        raise ValueError(message)
    return value
