"""The baselines by name, in the order in which tables show them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from cmimh_tf.baselines.hasher import Hasher


@dataclass(frozen=True)
class Baseline:
    """Where a baseline is defined, and its settings besides code length and seed.

    Attributes:
        module: dotted name; imported only when the baseline is made, since some need TensorFlow.
        class_name: a `Hasher` in that module.
        options: further keyword arguments of the class.
    """

    module: str
    class_name: str
    options: dict[str, Any] = field(default_factory=dict)


BASELINES: dict[str, Baseline] = {
    "CVH": Baseline("cmimh_tf.baselines.cca_hashers", "CVH"),
    "PDH": Baseline("cmimh_tf.baselines.pdh", "PDH"),
    "CMFH": Baseline("cmimh_tf.baselines.cmfh", "CMFH"),
    "ACQ": Baseline("cmimh_tf.baselines.cca_hashers", "ACQ"),
    "ACQ (tuned ridge)": Baseline("cmimh_tf.baselines.cca_hashers", "ACQ", {"ridge": "auto"}),
    "FSH": Baseline("cmimh_tf.baselines.fsh", "FSH"),
    "DJSRH": Baseline("cmimh_tf.baselines.djsrh", "DJSRH"),
    "DGCPN": Baseline("cmimh_tf.baselines.dgcpn", "DGCPN"),
    "CIRH": Baseline("cmimh_tf.baselines.cirh", "CIRH"),
    "UCCH": Baseline("cmimh_tf.baselines.ucch", "UCCH"),
    "CCA-ITQ": Baseline("cmimh_tf.baselines.cca_hashers", "CCAITQ"),
    "Random": Baseline("cmimh_tf.baselines.linear", "RandomProjections"),
}
# Baselines whose codes are made from canonical variates alone, so the ridge matters most.
RIDGE_BASELINES = ("CVH", "ACQ", "CCA-ITQ")


def make_baseline(name: str, code_length: int, seed: int, **options: Any) -> Hasher:
    """An unfitted baseline with the settings of the result tables.

    Args:
        name: a key of `BASELINES`.
        code_length: number of bits, a positive multiple of 8.
        seed: of every random choice that the method makes.
        options: keyword arguments of the baseline's class, in place of those settings.

    Raises:
        ValueError: if there is no such baseline; the message lists all names.
    """
    if name not in BASELINES:
        raise ValueError(f"`name` must be one of {', '.join(map(repr, BASELINES))}. Received: name={name!r}.")
    baseline = BASELINES[name]
    hasher_class = getattr(importlib.import_module(baseline.module), baseline.class_name)
    return hasher_class(code_length, seed=seed, **{**baseline.options, **options})
