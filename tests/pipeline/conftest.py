"""Imports the pipeline's stack once, with what it says about itself left out: nothing of it can be cured here."""

import warnings

import cmimh_tf  # noqa: F401  Selects Keras 3 before tensorflow_transform is imported.

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow_transform.beam  # noqa: F401
    import tfx.v1  # noqa: F401

import pytest
import tensorflow as tf


class ColourMeans(tf.Module):
    """A feature vector as TF-Hub has them: the mean colour, times a weight."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable([1.0, 2.0, 4.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 4, 4, 3], tf.float32, name="inputs")])
    def __call__(self, pictures):
        return {"default": tf.reduce_mean(pictures, axis=[1, 2]) * self.weight}


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    """The name of features by a small network."""
    folder = tmp_path_factory.mktemp("network")
    model = ColourMeans()
    tf.saved_model.save(model, str(folder), signatures={"serving_default": model.__call__})
    return f"hub:{folder}"
