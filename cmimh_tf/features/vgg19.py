"""VGG19 up to its second wide layer, fc7 (Keras calls it fc2).

Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from cmimh_tf.features.image_features import ImageFeatures
from cmimh_tf.features.pictures import crop_centre, fit_shorter_side

PICTURE_SIZE = 224
_SHORTER_SIDE = 256
_LAYER = "fc2"


def image_features(weights: str) -> ImageFeatures:
    """Encoded pictures -> float32 [B, 4096], after fc7's ReLU.

    Args:
        weights: Keras's .h5 file with the dense layers, or "imagenet", which Keras downloads.
    """
    whole = keras.applications.VGG19(weights=weights)
    network = keras.Model(whole.input, whole.get_layer(_LAYER).output, name="vgg19_fc7", trainable=False)

    def prepare(picture: tf.Tensor) -> tf.Tensor:
        cropped = crop_centre(fit_shorter_side(picture, _SHORTER_SIDE), PICTURE_SIZE)
        return keras.applications.vgg19.preprocess_input(cropped)

    return ImageFeatures(
        "vgg19_fc7",
        network.output_shape[-1],
        PICTURE_SIZE,
        prepare,
        lambda pictures: network(pictures, training=False),
        network,
    )
