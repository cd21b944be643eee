"""Imports the pipeline's stack once, with what it says about itself left out: nothing of it can be cured here."""

import warnings

import cmimh_tf  # noqa: F401  Selects Keras 3 before tensorflow_transform is imported.

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow_transform.beam  # noqa: F401
    import tfx.v1  # noqa: F401
