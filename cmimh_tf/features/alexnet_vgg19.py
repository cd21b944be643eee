"""AlexNet and VGG19 up to their second wide layer, fc7: the features of the paper.

AlexNet in torchvision's layout: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014,
arXiv 1404.5997. VGG19, where Keras calls the layer fc2: Simonyan and Zisserman, "Very Deep Convolutional Networks for
Large-Scale Image Recognition", ICLR 2015.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.features.image_features import ImageFeatures, crop_centre, fit_shorter_side
from cmimh_tf.features.weights import read_pth

PICTURE_SIZE = 224
_SHORTER_SIDE = 256

# (index in torchvision's `features`, stride, padding, whether pooling follows)
_CONVOLUTIONS = ((0, 4, 2, True), (3, 1, 2, True), (6, 1, 1, False), (8, 1, 1, False), (10, 1, 1, True))
_DENSE = (1, 4)
_LAST_GRID = 6
_MEANS = (0.485, 0.456, 0.406)
_DEVIATIONS = (0.229, 0.224, 0.225)
_VGG19_LAYER = "fc2"


def alexnet_features(path: str | os.PathLike[str]) -> ImageFeatures:
    """Encoded pictures -> float32 [B, 4096]: the shorter side to 256, the central 224x224, then the network.

    Args:
        path: weights from torchvision, alexnet-owt-*.pth.
    """
    network = make_alexnet(read_pth(path))

    def prepare(picture: tf.Tensor) -> tf.Tensor:
        return crop_centre(fit_shorter_side(picture, _SHORTER_SIDE), PICTURE_SIZE) / 255.0

    return ImageFeatures(
        "alexnet_fc7",
        network.output_shape[-1],
        PICTURE_SIZE,
        prepare,
        lambda pictures: network(pictures, training=False),
        network,
    )


def make_alexnet(weights: Mapping[str, np.ndarray]) -> keras.Model:
    """The network: float [B, 224, 224, 3], RGB from 0 to 1 -> float [B, 4096], after fc7's ReLU.

    Args:
        weights: state dict from torchvision. Its arrays define the widths of the layers.

    Raises:
        ValueError: if a weight is missing.
    """
    pictures = keras.Input([PICTURE_SIZE, PICTURE_SIZE, 3])
    x = (pictures - np.array(_MEANS, np.float32)) / np.array(_DEVIATIONS, np.float32)
    values: dict[str, list[np.ndarray]] = {}
    for number, stride, padding, is_pooled in _CONVOLUTIONS:
        # [out, in, height, width] -> [height, width, in, out]
        kernel, bias = _pair(weights, f"features.{number}")
        kernel = kernel.transpose(2, 3, 1, 0)
        layer = keras.layers.Conv2D(
            kernel.shape[-1], kernel.shape[0], stride, activation="relu", name=f"convolution_{number}"
        )
        x = layer(keras.layers.ZeroPadding2D(padding)(x))
        values[layer.name] = [kernel, bias]
        if is_pooled:
            x = keras.layers.MaxPooling2D(3, 2)(x)
    x = keras.layers.Flatten()(x)
    for number in _DENSE:
        kernel, bias = _pair(weights, f"classifier.{number}")
        if number == _DENSE[0]:
            # PyTorch flattens [channels, height, width]; Keras flattens [height, width, channels].
            grid = kernel.reshape(len(kernel), -1, _LAST_GRID, _LAST_GRID)
            kernel = grid.transpose(0, 2, 3, 1).reshape(len(kernel), -1)
        layer = keras.layers.Dense(len(kernel), activation="relu", name=f"dense_{number}")
        x = layer(x)
        values[layer.name] = [kernel.T, bias]
    model = keras.Model(pictures, x, name="alexnet_fc7", trainable=False)
    for name, arrays in values.items():
        model.get_layer(name).set_weights(arrays)
    return model


def vgg19_features(weights: str) -> ImageFeatures:
    """Encoded pictures -> float32 [B, 4096], after fc7's ReLU.

    Args:
        weights: an .h5 file from Keras that includes the dense layers, or "imagenet", which Keras downloads.
    """
    whole = keras.applications.VGG19(weights=weights)
    network = keras.Model(whole.input, whole.get_layer(_VGG19_LAYER).output, name="vgg19_fc7", trainable=False)

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


def _pair(weights: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    for part in ("weight", "bias"):
        if f"{name}.{part}" not in weights:
            raise ValueError(
                f"`weights` must be those of torchvision's AlexNet. Received: none named {name}.{part} among "
                f"{', '.join(list(weights)[:3])}, ..."
            )
    return weights[f"{name}.weight"], weights[f"{name}.bias"]
