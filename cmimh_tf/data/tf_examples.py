"""tf.Examples of pairs: what the pipeline and the shards of features are written in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def make_example(features: Mapping[str, Any]) -> tf.train.Example:
    """A tf.Example of strings, bytes, integers and arrays of numbers."""
    return tf.train.Example(
        features=tf.train.Features(feature={name: _feature(value) for name, value in features.items()})
    )


def _feature(value: Any) -> tf.train.Feature:
    if isinstance(value, str | bytes):
        encoded = value.encode("utf-8") if isinstance(value, str) else value
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
    numbers = np.atleast_1d(np.asarray(value))
    if numbers.dtype.kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=numbers))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))
