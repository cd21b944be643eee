"""Cross-modal info-max hashing (CMIMH): short binary codes for pictures and texts, learned without labels.

The public names are loaded on first use, so that `import cmimh_tf` and `--help` stay fast:

>>> from cmimh_tf import CMIMH, get_preset, load_npz, make_splits, train
"""

import importlib
import os
from typing import Any

# tensorflow_transform switches Keras 2 on when this is unset, and every model here is a Keras 3 model.
os.environ["TF_USE_LEGACY_KERAS"] = "0"

__version__ = "0.1.0"

_PUBLIC_NAMES = {
    "CMIMH": "cmimh_tf.models.cmimh",
    "CMIMHConfig": "cmimh_tf.config",
    "PairedData": "cmimh_tf.data.paired",
    "evaluate_model": "cmimh_tf.training.evaluation",
    "get_preset": "cmimh_tf.config",
    "load_model": "cmimh_tf.training.run_folder",
    "load_npz": "cmimh_tf.data.files",
    "make_splits": "cmimh_tf.data.splits",
    "train_model": "cmimh_tf.training.trainer",
}
__all__ = sorted(_PUBLIC_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC_NAMES:
        raise AttributeError(f"module 'cmimh_tf' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC_NAMES[name]), name)
