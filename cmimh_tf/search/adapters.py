"""Everything that search uses of the project's models, features and data, in one place.

Other modules of this package import models, features and readers only through this one. Nothing here imports
TensorFlow before a model or features are loaded.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.records import PairReader, PairRecord, RecordIndex
from cmimh_tf.files import read_json

MODEL_FILE = "model.keras"
SAVED_MODEL_FILE = "saved_model.pb"
# Made of the words of the emoji that a run with this seed was trained on.
EMOJI_WORDS = "emoji_words"
# The features that a model takes if its inputs have these widths and nothing else is said.
IMAGE_FEATURES_OF_WIDTH = {1280: "efficientnet_lite0", 572: "descriptor"}
TEXT_FEATURES_OF_WIDTH = {384: "minilm"}
# The columns of a table that are not metadata.
_TABLE_COLUMNS = ("image", "text", "labels", "id")
_NPZ_KEYS = ("image", "text", "labels", "ids", "captions", "is_query", "is_train", "classes")

# Inputs of B items -> bits, bool [B, L], and logits, float32 [B, L].
Encoder = Callable[[Any], tuple[np.ndarray, np.ndarray]]
_SIGNATURES = {
    "hash_image": "image",
    "hash_text": "text",
    "hash_image_bytes": "image_bytes",
    "hash_caption": "caption",
}
# A float32 probability cannot tell larger logits from infinite ones.
_LARGEST_LOGIT = 16.0


def load_run(file: Path) -> dict[str, Encoder]:
    """The encoders of a trained model, which take float32 [B, units], for "image" and "text"."""
    import tensorflow as tf

    from cmimh_tf.training.run_folder import load_model

    model = load_model(file)

    def encoder(side: str, units: int | None) -> Encoder:
        compiled = tf.function(functools.partial(model.code_logits, side), [tf.TensorSpec([None, units], tf.float32)])

        def encode(vectors: Any) -> tuple[np.ndarray, np.ndarray]:
            logits = compiled(tf.constant(vectors)).numpy()
            return logits >= 0, logits

        return encode

    return {"image": encoder("image", model.image_units), "text": encoder("text", model.text_units)}


def load_export(folder: Path) -> dict[str, Encoder]:
    """The signatures of an exported model: "hash_image", "hash_text", "hash_image_bytes" and "hash_caption".

    Raises:
        ValueError: if the model cannot be read; from a signature, for inputs that it rejects.
    """
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(str(folder))
    except Exception as error:  # Damaged files raise errors of many kinds.
        raise ValueError(f"{folder} cannot be read as an exported model: {error}") from error

    def encoder(name: str, argument: str) -> Encoder:
        def encode(inputs: Any) -> tuple[np.ndarray, np.ndarray]:
            try:
                # Through the module, which a signature needs but does not keep.
                outputs = loaded.signatures[name](**{argument: tf.constant(inputs)})
            except tf.errors.InvalidArgumentError as error:
                raise ValueError(_rejection(error.message, argument)) from error
            probs = outputs["probs"].numpy().astype(np.float64)
            with np.errstate(divide="ignore"):
                logits = np.log(probs) - np.log1p(-probs)
            logits = np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT).astype(np.float32)
            return outputs["bits"].numpy().astype(bool), logits

        return encode

    return {name: encoder(name, argument) for name, argument in _SIGNATURES.items() if name in loaded.signatures}


def _rejection(message: str, argument: str) -> str:
    """The sentence in an error of a graph that says why inputs were rejected."""
    sentences = [line.strip() for line in message.splitlines() if line.strip().startswith("`")]
    if not sentences and argument == "image_bytes":
        return "`image` must be a JPEG, PNG, GIF or BMP picture. Received: another format."
    return sentences[0] if sentences else message.strip().partition("\n")[0]


def make_features(side: str, name: str) -> tuple[Callable[[Sequence[Any]], np.ndarray], int]:
    """What makes vectors of encoded pictures or of texts, and their width.

    Args:
        side: "image" or "text".
        name: of `cmimh_tf.features.registry`, or "emoji_words:SEED".

    Raises:
        ValueError: if the name is not known; from the function, if a picture cannot be decoded.
        ImportError: if the package of the weights is missing.
    """
    from cmimh_tf.features.compute import VectorComputer
    from cmimh_tf.features.registry import make_image_features, make_text_features

    if side == "image":
        image_features = make_image_features(name)
        images = VectorComputer(image_features=image_features)
        return lambda pictures: np.concatenate(list(images.images(pictures))), image_features.dim
    kind, _, seed = name.partition(":")
    text_features = _emoji_words(int(seed)) if kind == EMOJI_WORDS else make_text_features(name)
    texts = VectorComputer(text_features=text_features)
    return lambda captions: np.concatenate(list(texts.texts(captions))), text_features.dim


def _emoji_words(seed: int) -> Any:
    from cmimh_tf.data.emoji import NUM_EMOJI, load_emoji_raw
    from cmimh_tf.data.splits import make_splits
    from cmimh_tf.features.registry import make_text_features

    texts = load_emoji_raw().texts
    return make_text_features("bag_of_words", [texts[row] for row in make_splits(NUM_EMOJI, seed).train])


def features_of_run(folder: Path) -> dict[str, str]:
    """The features that a run was trained on, by side, if they are known from its data."""
    path = folder / "config.json"
    if not path.is_file():
        return {}
    description = read_json(path)
    if description.get("data", {}).get("name") != "emoji":
        return {}
    return {"image": "descriptor", "text": f"{EMOJI_WORDS}:{description['split']['seed']}"}


def check_features(side: str, name: str) -> None:
    """Raises ValueError or ImportError at once if features cannot be made."""
    from cmimh_tf.features.registry import image_features_version, text_features_version

    if not name.startswith(EMOJI_WORDS):
        (image_features_version if side == "image" else text_features_version)(name)


@dataclass(frozen=True, eq=False)
class SourceItem:
    """One record of the data.

    Attributes:
        id: of the record.
        place: where it is, for messages.
        image: a vector, or the bytes of a picture.
        text: a vector, or a caption.
        caption: the text to show, or None.
        picture: the path of the picture, or None.
        metadata: values by column; those of a CSV file are strings.
    """

    id: str
    place: str
    image: np.ndarray | bytes
    text: np.ndarray | str
    caption: str | None
    picture: str | None
    metadata: dict[str, Any]


class DataSource:
    """The data behind --data.

    Args:
        spec: a path or a name, as every command takes it.

    Attributes:
        index: ids, blocks and splits.

    Raises:
        FileNotFoundError: if there is nothing of that name.
        ValueError: if the data are wrong.
    """

    def __init__(self, spec: str):
        from cmimh_tf.data.sources import is_name, open_records

        self.reader: PairReader = open_records(spec)
        self.spec = spec if is_name(spec) else str(Path(spec).absolute())
        # In a CSV file every value is a string.
        self.has_plain_strings = self._path().suffix.lower() == ".csv"
        self.index = self.reader.index()
        self._is_used = self.index.is_used()

    def __len__(self) -> int:
        return int(self._is_used.sum())

    def fingerprint(self) -> str:
        """Changes with the data."""
        return self.reader.fingerprint()

    def read(self, start: int = 0) -> Iterator[SourceItem]:
        """The records from number `start` on."""
        position = 0
        for first, stop in self.index.blocks:
            used = int(self._is_used[first:stop].sum())
            if position + used <= start:
                position += used
                continue
            for row, (_, item) in enumerate(self.read_block(first, stop), first):
                if not self._is_used[row]:
                    continue
                if position >= start:
                    yield item
                position += 1

    def read_block(self, first: int, stop: int) -> Iterator[tuple[PairRecord, SourceItem]]:
        """All records of one block of the reader, used or not."""
        for record, extra in self._block(first, stop):
            yield record, self._item(record, extra)

    def for_workers(self) -> DataSource:
        """A small copy for other processes, which only reads blocks: it does not hold the ids of all records."""
        small = copy.copy(self)
        small.index = RecordIndex([], [], classes=self.index.classes)
        small._is_used = np.empty(0, bool)
        return small

    def plain_strings(self) -> Iterator[Mapping[str, str]]:
        """The metadata of all records of a CSV file, to find out which columns are numbers."""
        for _, row in self.reader.rows():  # type: ignore[attr-defined]
            yield {name: value for name, value in row.items() if name not in _TABLE_COLUMNS}

    def _path(self) -> Path:
        return Path(getattr(self.reader, "path", ""))

    def _block(self, first: int, stop: int) -> Iterator[tuple[PairRecord, Mapping[str, Any]]]:
        suffix = self._path().suffix.lower()
        if suffix == ".npz":
            columns = _npz_columns(self._path(), len(self.reader.index().ids))
            extra: Iterator[Mapping[str, Any]] = (
                {name: values[row] for name, values in columns.items()} for row in range(first, stop)
            )
        elif suffix == ".parquet":
            tables = (row for _, row in self.reader.rows(first, stop))  # type: ignore[attr-defined]
            extra = (
                {**row, **more} for row, more in zip(tables, _parquet_rows(self._path(), first, stop), strict=True)
            )
        elif hasattr(self.reader, "rows"):
            extra = (row for _, row in self.reader.rows(first, stop))
        else:
            extra = itertools.repeat({}, stop - first)
        yield from zip(self.reader.read(first, stop), extra, strict=True)

    def _item(self, record: PairRecord, extra: Mapping[str, Any]) -> SourceItem:
        metadata = {name: value for name, value in extra.items() if name not in _TABLE_COLUMNS and value != ""}
        if record.labels is not None:
            classes = self.index.classes or [str(number) for number in range(len(record.labels))]
            metadata["label"] = [classes[column] for column in np.flatnonzero(record.labels)]
        image = record.image if record.image is not None else record.image_bytes
        text = record.text if record.text is not None else record.caption
        assert image is not None
        assert text is not None
        return SourceItem(
            record.id, record.place, image, text, record.caption or None, self._picture(extra.get("image")), metadata
        )

    def _picture(self, image: Any) -> str | None:
        if isinstance(image, Mapping):
            image = None if image.get("bytes") else image.get("path")
        if not isinstance(image, str) or not image.strip():
            return None
        return image if "://" in image else str((self._path().parent / image.strip()).absolute())


@functools.lru_cache(maxsize=1)
def _npz_columns(path: Path, count: int) -> dict[str, list[Any]]:
    """Further arrays of an .npz file with one string or number per pair."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files if name not in _NPZ_KEYS}
    return {
        name: array.tolist()
        for name, array in arrays.items()
        if array.shape == (count,) and array.dtype.kind in "biufU"
    }


def _parquet_rows(path: Path, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
    """The columns of a Parquet file that its reader does not give."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if name not in (*_TABLE_COLUMNS, "file_name", "caption")]
        first = 0
        for group in range(file.num_row_groups):
            after = first + file.metadata.row_group(group).num_rows
            if names and after > start and first < stop:
                table = file.read_row_group(group, columns=names)
                yield from table.slice(max(start - first, 0), min(stop, after) - max(start, first)).to_pylist()
            elif not names and after > start and first < stop:
                yield from itertools.repeat({}, min(stop, after) - max(start, first))
            first = after
