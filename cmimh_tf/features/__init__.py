"""Features: vectors of pictures and texts, computed by TensorFlow graphs.

The public names are imported on first use because importing TensorFlow takes seconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmimh_tf.features.bag_of_words import BagOfWords, fit_vocabulary, tokenize
    from cmimh_tf.features.descriptor import DESCRIPTOR_DIM, describe_pictures
    from cmimh_tf.features.projection import Projection
    from cmimh_tf.features.registry import make_image_features, make_text_features

_MODULES = {
    "DESCRIPTOR_DIM": "descriptor",
    "BagOfWords": "bag_of_words",
    "Projection": "projection",
    "describe_pictures": "descriptor",
    "fit_vocabulary": "bag_of_words",
    "make_image_features": "registry",
    "make_text_features": "registry",
    "tokenize": "bag_of_words",
}
__all__ = [
    "DESCRIPTOR_DIM",
    "BagOfWords",
    "Projection",
    "describe_pictures",
    "fit_vocabulary",
    "make_image_features",
    "make_text_features",
    "tokenize",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'cmimh_tf.features' has no attribute {name!r}")
    return getattr(importlib.import_module(f"cmimh_tf.features.{_MODULES[name]}"), name)
