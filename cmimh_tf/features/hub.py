"""Networks from TF-Hub, by address or as a folder with a SavedModel.

Pictures: any feature vector (https://www.tensorflow.org/hub/common_signatures/images) with float inputs
[B, height, width, 3] from 0 to 1. Texts: any BERT with its preprocessing
(https://www.tensorflow.org/hub/common_saved_model_apis/text).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from cmimh_tf.features.image_features import ImageFeatures, stretch
from cmimh_tf.features.weights import import_optional

_DEFAULT_SIZE = 224
_SIGNATURES = ("serving_default", "image_feature_vector", "default")
_SENTENCE = "pooled_output"


def load_handle(handle: str) -> Any:
    """Loads a SavedModel from an address or a folder. tensorflow-hub downloads an address into its cache.

    Raises:
        ValueError: if `handle` is neither an address nor a folder with a SavedModel.
    """
    if handle.startswith(("https://", "http://", "gs://")):
        folder = import_optional("tensorflow-hub", "tensorflow_hub").resolve(handle)
    else:
        folder = handle
        if not tf.saved_model.contains_saved_model(folder):
            raise ValueError(f"`handle` must be a TF-Hub address or a SavedModel's folder. Received: {handle!r}.")
    try:
        return tf.saved_model.load(folder)
    except (RuntimeError, tf.errors.NotFoundError) as error:
        if "Op type not registered" not in str(error):
            raise
        # BERT's preprocessing on TF-Hub uses ops that are registered when tensorflow-text is imported.
        import_optional("tensorflow-text", "tensorflow_text")
        return tf.saved_model.load(folder)


def image_features(handle: str) -> ImageFeatures:
    """Encoded pictures -> float32 [B, dim], resized to the input size of the network."""
    network = HubVectors(handle)

    def prepare(picture: tf.Tensor) -> tf.Tensor:
        return stretch(picture, network.picture_size) / 255.0

    return ImageFeatures(f"hub:{handle}", network.dim, network.picture_size, prepare, network, network)


class HubVectors(tf.Module):
    """Maps float [B, size, size, 3] from 0 to 1 to float32 [B, dim].

    Args:
        handle: address or folder of a feature vector.
    """

    def __init__(self, handle: str):
        super().__init__(name="hub_vectors")
        self.loaded = load_handle(handle)
        found = [name for name in _SIGNATURES if name in self.loaded.signatures]
        if not found:
            raise ValueError(
                f"`handle` must have one of the signatures {', '.join(_SIGNATURES)}. "
                f"Received: {handle!r} with {', '.join(self.loaded.signatures) or 'none'}."
            )
        self._signature = found[0]
        inputs = self.loaded.signatures[self._signature].structured_input_signature[1]
        (self._input_name,) = inputs
        self.picture_size = _picture_size(inputs[self._input_name].shape)
        blank = tf.zeros([1, self.picture_size, self.picture_size, 3])
        self.dim = int(self(blank).shape[-1])

    def __call__(self, pictures: tf.Tensor) -> tf.Tensor:
        outputs = self.loaded.signatures[self._signature](**{self._input_name: pictures})
        vectors = outputs["default"] if "default" in outputs else next(iter(outputs.values()))
        return tf.reshape(tf.cast(vectors, tf.float32), [tf.shape(vectors)[0], vectors.shape[-1]])


class HubBert(tf.Module):
    """Maps string [B] to float32 [B, dim], the pooled output of a BERT encoder.

    Args:
        handle: the encoder, a comma, and the preprocessing. The preprocessing is optional for TensorFlow's English
            encoders, where it is known.
    """

    def __init__(self, handle: str):
        super().__init__(name="hub_bert")
        encoder, _, preprocessing = handle.partition(",")
        self.preprocessing = load_handle(preprocessing or _preprocessing_of(encoder))
        self.encoder = load_handle(encoder)
        self.dim = int(self(tf.constant(["a text"])).shape[-1])

    def __call__(self, texts: Any) -> tf.Tensor:
        outputs = self.encoder(self.preprocessing(tf.convert_to_tensor(texts, tf.string)))
        return tf.cast(outputs[_SENTENCE], tf.float32)


def _picture_size(shape: tf.TensorShape) -> int:
    if shape.rank != 4 or shape[1] != shape[2]:
        raise ValueError(f"`handle` must have square inputs, [B, size, size, 3]. Received: {shape}.")
    return _DEFAULT_SIZE if shape[1] is None else int(shape[1])


def _preprocessing_of(encoder: str) -> str:
    for kind in ("uncased", "cased"):
        if encoder.startswith("https://tfhub.dev/") and f"_en_{kind}_" in encoder:
            return f"https://tfhub.dev/tensorflow/bert_en_{kind}_preprocess/3"
    folder = Path(encoder).parent / "preprocessing"
    if tf.saved_model.contains_saved_model(str(folder)):
        return str(folder)
    raise ValueError(
        f"`handle` must name the preprocessing after a comma, bert:ENCODER,PREPROCESSING. Received: {encoder!r}."
    )
