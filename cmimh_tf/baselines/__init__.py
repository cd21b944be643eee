"""Earlier cross-modal hashing methods to compare with, all behind the `Hasher` interface.

The public names are loaded on first use, so that importing the registry stays fast:

>>> from cmimh_tf.baselines import make_baseline
>>> hasher = make_baseline("ACQ", code_length=32, seed=0)
"""

import importlib
from typing import Any

_PUBLIC_NAMES = {
    "ACQ": "cmimh_tf.baselines.cca_hashers",
    "BASELINES": "cmimh_tf.baselines.registry",
    "CVH": "cmimh_tf.baselines.cca_hashers",
    "Hasher": "cmimh_tf.baselines.hasher",
    "make_baseline": "cmimh_tf.baselines.registry",
}
__all__ = sorted(_PUBLIC_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC_NAMES:
        raise AttributeError(f"module 'cmimh_tf.baselines' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC_NAMES[name]), name)
