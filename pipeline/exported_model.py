"""Codes by the signatures of an exported model: in this process, or in a fresh one without this project's code."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cmimh_tf.checksums import verify_export
from cmimh_tf.metrics.evaluation import CodedItems
from pipeline.examples import (
    CAPTION,
    CAPTION_FEATURES,
    IMAGE,
    IMAGE_BYTES,
    IMAGE_FEATURES,
    LABELS,
    POSITION,
    TEXT,
    read_raw,
)
from pipeline.network_features import VERSIONS_FILE

_BATCH_SIZE = 256
_SIGNATURES = {IMAGE: "hash_image", IMAGE_BYTES: "hash_image_bytes", TEXT: "hash_text", CAPTION: "hash_caption"}


def hash_split(model_directory: str | Path, examples_uri: str, split: str) -> CodedItems:
    """Hashes both modalities of one split of raw Examples, as a client would.

    Args:
        model_directory: an exported SavedModel.
        examples_uri: an Examples artifact.
        split: the name of its split.

    Returns:
        Codes and labels in the order of the split.

    Raises:
        ValueError: if the model has no signature for the inputs that the Examples hold.
    """
    verify_export(Path(model_directory))
    signatures = tf.saved_model.load(str(model_directory)).signatures
    reusable = _reusable_features(Path(model_directory), Path(examples_uri))
    image_codes: list[np.ndarray] = []
    text_codes: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    positions: list[int] = []
    for rows in _batches(read_raw(examples_uri, split)):
        for row, (features, vector) in itertools.product(rows, reusable.items()):
            if features in row:
                row[vector] = row[features]
        image_codes.append(_codes(signatures, rows, (IMAGE, IMAGE_BYTES)))
        text_codes.append(_codes(signatures, rows, (TEXT, CAPTION)))
        labels += [row[LABELS] for row in rows if LABELS in row]
        positions += [row[POSITION] for row in rows]
    order = np.argsort(positions)
    return CodedItems(
        np.concatenate(image_codes)[order],
        np.concatenate(text_codes)[order],
        np.stack(labels)[order] if labels else None,
    )


def call_signatures(directory: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Loads an exported model in a fresh process and calls each of its signatures.

    Args:
        directory: an exported SavedModel.
        inputs: a batch for each input name that a signature may have; byte strings as hexadecimal digits.

    Returns:
        The outputs by "<signature>/<output>"; byte strings as hexadecimal digits.

    Raises:
        RuntimeError: if the process fails, with the end of its error output.
    """
    verify_export(Path(directory))
    # The source of one function is passed to Python, so that nothing of this project is imported there.
    program = f"import sys\n{inspect.getsource(_call_in_fresh_process)}\n_call_in_fresh_process(*sys.argv[1:])"
    with tempfile.TemporaryDirectory() as folder:
        paths = os.path.join(folder, "inputs.npz"), os.path.join(folder, "outputs.npz")
        np.savez(paths[0], **inputs)
        run = subprocess.run(
            [sys.executable, "-c", program, directory, *paths],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )
        if run.returncode != 0:
            last = "\n".join(run.stderr.strip().splitlines()[-3:])
            raise RuntimeError(f"the exported model cannot be called: {last}")
        with np.load(paths[1], allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}


def _call_in_fresh_process(directory: str, inputs_path: str, outputs_path: str) -> None:
    """Runs on its own, so it imports what it needs, and only NumPy and TensorFlow."""
    import sys

    import numpy as np
    import tensorflow as tf

    with np.load(inputs_path, allow_pickle=False) as archive:
        inputs = {name: archive[name] for name in archive.files}
    outputs = {}
    for name, signature in tf.saved_model.load(directory).signatures.items():
        (input_name,) = signature.structured_input_signature[1]
        if input_name not in inputs:
            sys.exit(f"The signature {name} needs `{input_name}`, for which there is no test input.")
        batch = inputs[input_name]
        # NumPy drops zero bytes at the end of a string, hence the hexadecimal digits.
        values = [bytes.fromhex(text) for text in batch.tolist()] if batch.dtype.kind == "U" else batch
        # A text by itself: networks of pictures must cope with a batch that has none.
        signature(**{input_name: tf.constant(values[-1:])})
        for output_name, value in signature(**{input_name: tf.constant(values)}).items():
            array = value.numpy()
            is_text = array.dtype.kind == "O"
            outputs[f"{name}/{output_name}"] = np.array([text.hex() for text in array]) if is_text else array
    np.savez(outputs_path, **outputs)


def input_of(row: dict[str, Any], names: tuple[str, str]) -> str:
    """Which of a vector and a raw input is hashed: the vector if the row has one."""
    return names[0] if names[0] in row else names[1]


def _reusable_features(model_directory: Path, examples_uri: Path) -> dict[str, str]:
    """Features in the Examples that equal what the model would compute itself: {feature: the model's input}.

    Hashing them instead of pictures and captions saves the networks' time.
    """
    versions, config = examples_uri / VERSIONS_FILE, model_directory / "assets.extra" / "config.json"
    if not versions.exists() or not config.exists():
        return {}
    image, text = json.loads(versions.read_text(encoding="utf-8"))
    described = json.loads(config.read_text(encoding="utf-8"))
    reusable = {}
    if described.get("image_features") == image:
        reusable[IMAGE_FEATURES] = IMAGE
    if described.get("text_features") == text:
        reusable[CAPTION_FEATURES] = TEXT
    return reusable


def _codes(signatures: Any, rows: list[dict[str, Any]], names: tuple[str, str]) -> np.ndarray:
    """uint8 [B, L/8]."""
    name = input_of(rows[0], names)
    if _SIGNATURES[name] not in signatures:
        raise ValueError(f"The model must have the signature {_SIGNATURES[name]}. Received: {', '.join(signatures)}.")
    outputs = signatures[_SIGNATURES[name]](**{name: tf.constant([row[name] for row in rows])})
    return np.stack([np.frombuffer(code, np.uint8) for code in outputs["code_bytes"].numpy()])


def _batches(rows: Iterable[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    rows = iter(rows)
    while batch := list(itertools.islice(rows, _BATCH_SIZE)):
        yield batch
