"""Which feature of a TFDS data set is the picture, the text, the labels and the id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.data.pairs import DataError

_CAPTION_NAMES = ("caption", "captions", "text", "description", "sentence", "sentences", "title", "tags")
_ID_NAMES = ("id", "image/id", "image_id", "image/filename", "file_name", "filename")
_CAPTION_SEED = 0


@dataclass(frozen=True)
class Roles:
    """Which feature holds what. A path leads from a top-level name into sequences of dictionaries.

    Attributes:
        image: name of the feature with the picture or its vector.
        pictures: all features that are pictures; they stay encoded.
        text: name of the feature with a text vector, or None.
        caption: path of one or several captions, or None.
        labels: path of class numbers, or of a vector of 0 and 1, or None.
        num_labels: number of classes.
        classes: names of the classes, or None.
        id: name of the feature with the id, or None.
    """

    image: str
    pictures: tuple[str, ...]
    text: str | None
    caption: tuple[str, ...] | None
    labels: tuple[str, ...] | None
    num_labels: int
    classes: list[str] | None
    id: str | None


def find_roles(features: Any, folder: str) -> Roles:
    """Finds the roles by the types of the features, and by their names if several have the same type.

    Raises:
        DataError: if there is no picture or no text.
    """
    import tensorflow_datasets as tfds

    leaves = list(_leaves(features))
    types = tfds.features
    pictures = tuple(path[0] for path, leaf in leaves if len(path) == 1 and isinstance(leaf, types.Image))
    vectors = {path[0] for path, leaf in leaves if len(path) == 1 and _is_vector(leaf)}
    image = "image" if "image" in {*pictures, *vectors} else next(iter(pictures), None)
    captions = [path for path, leaf in leaves if isinstance(leaf, types.Text) and path[0] in _CAPTION_NAMES]
    captions.sort(key=lambda path: _CAPTION_NAMES.index(path[0]))
    text = "text" if "text" in vectors else None
    if image is None or not (captions or text):
        names = ", ".join("/".join(path) for path, _ in leaves)
        raise DataError(f"{folder}: must have a picture and a caption among its features. Received: {names}.")
    labels, num_labels, classes = None, 0, None
    for path, leaf in leaves:
        if isinstance(leaf, types.ClassLabel) and labels is None:
            labels, num_labels, classes = path, leaf.num_classes, list(leaf.names)
    if "labels" in vectors:
        labels, num_labels, classes = ("labels",), int(features["labels"].shape[0]), None
    item_id = next((name for name in _ID_NAMES if name in features), None)
    return Roles(image, pictures, text, captions[0] if captions else None, labels, num_labels, classes, item_id)


def caption_of(example: dict[str, Any], path: tuple[str, ...], place: str, row: int) -> str:
    """The caption at `path`. One of several is chosen by a fixed seed."""
    texts = np.atleast_1d(_value(example, path))
    if not len(texts):
        return ""
    chosen = texts[np.random.default_rng([_CAPTION_SEED, row]).integers(len(texts))]
    try:
        return chosen.decode("utf-8").strip() if isinstance(chosen, bytes) else str(chosen).strip()
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: `{path[0]}` must be UTF-8. Received: {chosen[:40]!r}.") from error


def labels_of(example: dict[str, Any], path: tuple[str, ...], num_labels: int) -> np.ndarray:
    """uint8 [num_labels] of 0 and 1, from class numbers or from such a vector."""
    values = np.atleast_1d(_value(example, path))
    if path == ("labels",) and len(values) == num_labels and values.dtype == np.uint8:
        return values
    labels = np.zeros(num_labels, np.uint8)
    # -1 means "unknown" in TFDS.
    labels[values[values >= 0].astype(np.int64)] = 1
    return labels


def _value(example: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = example
    for name in path:
        value = value[name]
    return value


def _leaves(features: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, feature) of all features that are not containers."""
    import tensorflow_datasets as tfds

    if isinstance(features, tfds.features.FeaturesDict):
        for name in features:
            yield from _leaves(features[name], (*path, name))
    elif isinstance(features, tfds.features.Sequence):
        yield from _leaves(features.feature, path)
    else:
        yield path, features


def _is_vector(leaf: Any) -> bool:
    import tensorflow_datasets as tfds

    is_text_or_class = isinstance(leaf, tfds.features.Text | tfds.features.ClassLabel | tfds.features.Image)
    return not is_text_or_class and len(leaf.shape or ()) == 1 and np.dtype(leaf.np_dtype).kind in "iuf"
