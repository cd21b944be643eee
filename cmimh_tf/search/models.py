"""The model that hashes items and queries: a training run, or an exported model.

What a model is, its fingerprint and what it takes are read from its files, without TensorFlow, so that a wrong model is
rejected at once.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.checksums import EXTRA_ASSETS, verify, verify_export
from cmimh_tf.codes import pack_bits
from cmimh_tf.search import adapters
from cmimh_tf.search.adapters import MODEL_FILE, SAVED_MODEL_FILE
from cmimh_tf.search.engines.interface import Header, ModelStamp
from cmimh_tf.search.items import SIDES

_BYTES_AT_ONCE = 1 << 20
_VECTORS_AT_ONCE = 4096
_RAW_AT_ONCE = 64
_VECTOR_SIGNATURES = {"image": "hash_image", "text": "hash_text"}
_RAW_SIGNATURES = {"image": "hash_image_bytes", "text": "hash_caption"}


class ModelMismatch(ValueError):
    """A model that is not the one that made the codes of an index."""


@dataclass(frozen=True)
class ModelDescription:
    """What is known of a model from its files.

    Attributes:
        stamp: fingerprint, place, version, and the features of raw inputs.
        path: the .keras file, or the folder of the exported model.
        code_length: L.
        widths: of the vectors of "image" and "text".
        takes_raw: the sides whose pictures or captions it takes itself.
    """

    stamp: ModelStamp
    path: Path
    code_length: int
    widths: dict[str, int]
    takes_raw: tuple[str, ...]

    @property
    def is_export(self) -> bool:
        """Whether it is an exported model, not a run."""
        return self.path.is_dir()

    def hashes_raw(self, side: str) -> bool:
        """Whether codes can be made of pictures ("image") or captions ("text"), not of vectors only."""
        return side in self.takes_raw or getattr(self.stamp, f"{side}_features") is not None

    def check_raw(self, sides: Iterable[str]) -> None:
        """Raises ValueError if the model can make no codes of pictures ("image") or captions ("text")."""
        for side in sides:
            if self.hashes_raw(side):
                continue
            what, flag = ("pictures", "--image-features") if side == "image" else ("captions", "--text-features")
            raise ValueError(
                f"{self.stamp.path} was trained on {side} vectors of width {self.widths[side]}, and it is not known "
                f"how they were made of {what}. Name the features with {flag} when the index is built, or search with "
                "ids, codes or vectors."
            )


def describe_model(
    model: str | Path, image_features: str | None = None, text_features: str | None = None
) -> ModelDescription:
    """Reads what a model is.

    Args:
        model: a run folder or its .keras file, an exported model, or a folder of exported versions, of which the newest
            is used.
        image_features, text_features: names of the features that make vectors of raw pictures and captions. By default
            those of the run's data if they are known, or those with the width that the model takes.

    Raises:
        FileNotFoundError: if there is no model.
        ValueError: if the files are no model of this project, or the features are not known.
    """
    path = find_model(model)
    if path.is_dir():
        code_length, widths, takes_raw = _read_export(path)
        known: dict[str, str] = {}
        version = int(path.name) if path.name.isdecimal() else None
        place = path
    else:
        code_length, widths, takes_raw = _read_keras(path)
        known = adapters.features_of_run(path.parent)
        version = None
        place = path.parent if path.name == MODEL_FILE else path
    by_width = {
        "image": adapters.IMAGE_FEATURES_OF_WIDTH.get(widths["image"]),
        "text": adapters.TEXT_FEATURES_OF_WIDTH.get(widths["text"]),
    }
    names = {}
    for side, given in (("image", image_features), ("text", text_features)):
        if given is not None:
            adapters.check_features(side, given)
        names[side] = given or (None if side in takes_raw else known.get(side) or by_width[side])
    stamp = ModelStamp(_fingerprint(path), str(place.absolute()), version, names["image"], names["text"])
    return ModelDescription(stamp, path, code_length, widths, takes_raw)


def find_model(model: str | Path) -> Path:
    """The .keras file or the export folder that a path stands for.

    Raises:
        FileNotFoundError: if there is none.
    """
    path = Path(model)
    if path.is_file() and path.suffix == ".keras":
        return path
    if (path / MODEL_FILE).is_file():
        return path / MODEL_FILE
    if (path / SAVED_MODEL_FILE).is_file():
        return path
    versions = [entry for entry in path.glob("*") if entry.name.isdecimal() and (entry / SAVED_MODEL_FILE).is_file()]
    if versions:
        return max(versions, key=lambda entry: int(entry.name))
    raise FileNotFoundError(
        f"`model` must be a run folder (with {MODEL_FILE}), an exported model (with {SAVED_MODEL_FILE}), or a folder "
        f"of exported versions. Received: {model}{'' if path.exists() else ', which does not exist'}."
    )


def model_of_index(header: Header, address: str, model: str | Path | None = None) -> HashingModel:
    """The model for the queries of an index, loaded.

    Args:
        header: of the index.
        address: of the index, for messages.
        model: where the model is; None for where it was when the index was built.

    Raises:
        ModelMismatch: if it is another model.
        FileNotFoundError: if it is no longer there.
    """
    return HashingModel(check_model(header, address, model))


def check_model(header: Header, address: str, model: str | Path | None = None) -> ModelDescription:
    """As `model_of_index`, without loading the model."""
    stamp = header.model
    if stamp is None:
        if model is None:
            raise ModelMismatch(
                f"{address} was built from codes, without a model: search it with ids or codes, or name the model that "
                "made the codes (--model)."
            )
        described = describe_model(model)
    else:
        try:
            described = describe_model(
                _version_of(stamp, model) or model or stamp.path, stamp.image_features, stamp.text_features
            )
        except FileNotFoundError as error:
            if model is not None:
                raise
            raise FileNotFoundError(
                f"The model of {address}, {stamp.describe()}, is no longer there. Name its new place (--model), or "
                f"hash the index with another model: python -m cmimh_tf.index rehash --index {address} --model MODEL"
            ) from error
        if described.stamp.fingerprint != stamp.fingerprint:
            raise ModelMismatch(
                f"{address} must be searched with the model that made it, {stamp.describe()}. Received: "
                f"{described.stamp.describe()}. To use the new model, hash the index again: python -m cmimh_tf.index "
                f"rehash --index {address} --model {model or stamp.path}"
            )
    if described.code_length != header.code_length:
        raise ModelMismatch(
            f"{address} must be searched with a model of {header.code_length} bits. Received: {described.code_length}."
        )
    return described


def _version_of(stamp: ModelStamp, model: str | Path | None) -> Path | None:
    """The version that made an index, if `model` is a folder of versions that still holds it."""
    if model is None or stamp.version is None:
        return None
    version = Path(model) / str(stamp.version)
    return version if (version / SAVED_MODEL_FILE).is_file() else None


class HashingModel:
    """A model, loaded, that makes codes of pictures, captions and vectors. Threads may share it.

    Args:
        description: of `describe_model`.
    """

    def __init__(self, description: ModelDescription):
        self.description = description
        self.stamp = description.stamp
        self.code_length = description.code_length
        self._lock = threading.Lock()
        self._features: dict[str, Callable[[Sequence[Any]], np.ndarray]] = {}
        if description.is_export:
            signatures = adapters.load_export(description.path)
            self._encoders = {side: signatures[name] for side, name in _VECTOR_SIGNATURES.items()}
            self._raw_encoders = {side: signatures[_RAW_SIGNATURES[side]] for side in description.takes_raw}
        else:
            self._encoders = adapters.load_run(description.path)
            self._raw_encoders = {}

    def hash_images(self, images: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Codes, uint8 [N, L/8], and logits, float32 [N, L].

        Args:
            images: N paths, encoded pictures (bytes) or vectors.

        Raises:
            FileNotFoundError: for a path where there is no file.
            ValueError: for what is no picture, or a vector of another width.
        """
        return self._hash("image", [_read(image) for image in images])

    def hash_texts(self, texts: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Codes, uint8 [N, L/8], and logits, float32 [N, L].

        Args:
            texts: N captions or vectors.

        Raises:
            ValueError: if the model takes no captions, or for a vector of another width.
        """
        return self._hash("text", texts)

    def _hash(self, side: str, inputs: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        is_vector = [isinstance(one, np.ndarray) for one in inputs]
        bits = np.empty((len(inputs), self.code_length), bool)
        logits = np.empty((len(inputs), self.code_length), np.float32)
        for kind, encode, at_once in (
            (True, self._encode_vectors, _VECTORS_AT_ONCE),
            (False, self._encode_raw, _RAW_AT_ONCE),
        ):
            rows = [row for row, vector in enumerate(is_vector) if vector == kind]
            for start in range(0, len(rows), at_once):
                part = rows[start : start + at_once]
                bits[part], logits[part] = encode(side, [inputs[row] for row in part], part)
        if not np.isfinite(logits).all():
            raise ValueError(f"`{side}` must be finite. Received: NaN or infinite values.")
        return pack_bits(bits), logits

    def _encode_vectors(
        self, side: str, vectors: Sequence[np.ndarray], rows: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        width = self.description.widths[side]
        for vector in vectors:
            if vector.shape != (width,):
                raise ValueError(
                    f"`{side}` must be vectors of width {width}, which the model takes. Received: shape {vector.shape}."
                )
        matrix = np.stack(vectors).astype(np.float32)
        # The networks may turn NaN into a number.
        finite = np.isfinite(matrix).all(axis=1)
        if not finite.all():
            row = rows[int(np.argmin(finite))]
            raise ValueError(f"`{side}` must be finite. Received: NaN or infinite values in row {row}.")
        return self._encoders[side](matrix)

    def _encode_raw(self, side: str, inputs: Sequence[Any], rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        if side in self._raw_encoders:
            return self._raw_encoders[side](inputs)
        self.description.check_raw([side])
        with self._lock:
            if side not in self._features:
                self._features[side] = self._make_features(side)
        return self._encode_vectors(side, list(self._features[side](inputs)), rows)

    def _make_features(self, side: str) -> Callable[[Sequence[Any]], np.ndarray]:
        name = getattr(self.stamp, f"{side}_features")
        function, width = adapters.make_features(side, name)
        if width != self.description.widths[side]:
            raise ValueError(
                f"`{side}_features` must have the width that the model takes, {self.description.widths[side]}. "
                f"Received: {name}, of width {width}."
            )
        return function


def _read(image: Any) -> Any:
    """The bytes of a picture that is given by its path; others as they are."""
    if isinstance(image, bytes | np.ndarray):
        return image
    path = Path(image)
    if not path.is_file():
        raise FileNotFoundError(f"`image` must be a picture file. Received: {path}, which does not exist.")
    return path.read_bytes()


def _fingerprint(path: Path) -> str:
    """16 hexadecimal digits that change with the weights."""
    digest = hashlib.sha256()
    if path.is_dir():
        files = [path / SAVED_MODEL_FILE, *sorted((path / "variables").glob("*")), *sorted((path / "assets").glob("*"))]
        for file in files:
            digest.update(file.name.encode())
            with file.open("rb") as opened:
                while block := opened.read(_BYTES_AT_ONCE):
                    digest.update(block)
        return digest.hexdigest()[:16]
    with zipfile.ZipFile(path) as archive:
        # The third part of the archive holds the time of saving.
        for name in ("config.json", "model.weights.h5"):
            digest.update(archive.read(name))
    return digest.hexdigest()[:16]


def _read_keras(path: Path) -> tuple[int, dict[str, int], tuple[str, ...]]:
    """Code length, widths, and no raw inputs, of a .keras file."""
    verify(path)
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as a model: {error}") from error
    values = {name: _find(config, name) for name in ("code_length", "image_units", "text_units")}
    if not all(isinstance(value, int) for value in values.values()):
        raise ValueError(f"{path} must hold a trained CMIMH model. Received: {config.get('class_name')}.")
    return values["code_length"], {"image": values["image_units"], "text": values["text_units"]}, ()


def _read_export(folder: Path) -> tuple[int, dict[str, int], tuple[str, ...]]:
    """Code length, widths and raw inputs of an exported model."""
    verify_export(folder)
    path = folder / EXTRA_ASSETS / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        widths = {side: int(config[f"{side}_width"]) for side in SIDES}
        takes = {"image": config["takes_image_bytes"], "text": config["takes_captions"]}
        return int(config["config"]["code_length"]), widths, tuple(side for side in SIDES if takes[side])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder} must be a model that cmimh_tf exported, with {path.name} in assets.extra. Received: {error}."
        ) from error


def _find(values: Any, name: str) -> Any:
    """The first value of a key, at any depth of JSON values."""
    if isinstance(values, dict):
        if values.get(name) is not None:
            return values[name]
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            found = _find(value, name)
            if found is not None:
                return found
    return None
