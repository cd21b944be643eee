"""Cross-modal info-max hashing (CMIMH): short binary codes for pictures and texts, learned without labels.

>>> from cmimh_tf import CMIMH
>>> model = CMIMH(code_length=32)

The public names are loaded on first use, so that `import cmimh_tf` and `--help` stay fast.
"""

import importlib
import os
from typing import Any

# tensorflow_transform switches Keras 2 on when this is unset, and every model here is a Keras 3 model.
os.environ["TF_USE_LEGACY_KERAS"] = "0"

__version__ = "0.2.0"

_PUBLIC_NAMES = {
    "CMIMH": "cmimh_tf.model",
    "CMIMHConfig": "cmimh_tf.config",
    "PairedData": "cmimh_tf.data.pairs",
    "create_index": "cmimh_tf.search.api",
    "evaluate_model": "cmimh_tf.training.evaluation",
    "get_preset": "cmimh_tf.config",
    "load_model": "cmimh_tf.training.run_folder",
    "load_npz": "cmimh_tf.data.npz",
    "make_splits": "cmimh_tf.data.splits",
    "open_index": "cmimh_tf.search.api",
    "prepare_dataset": "cmimh_tf.training.dataset",
    "train_model": "cmimh_tf.training.trainer",
}
_PUBLIC_MODULES = ("codes", "layers", "losses", "metrics", "ops", "optimizers", "terms")
__all__ = sorted([*_PUBLIC_NAMES, *_PUBLIC_MODULES])


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_MODULES:
        return importlib.import_module(f"cmimh_tf.{name}")
    if name not in _PUBLIC_NAMES:
        raise AttributeError(f"module 'cmimh_tf' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC_NAMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
