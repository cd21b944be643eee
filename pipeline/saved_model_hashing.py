"""Codes of raw pairs by an exported model's signatures, as a client would ask for them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cmimh_tf.metrics.evaluation import CodedItems
from pipeline.block_features import VERSIONS_FILE
from pipeline.examples import read_raw
from pipeline.features import CAPTION, CAPTION_FEATURES, IMAGE, IMAGE_BYTES, IMAGE_FEATURES, LABELS, POSITION, TEXT

_ROWS_AT_ONCE = 256
_SIGNATURES = {IMAGE: "hash_image", IMAGE_BYTES: "hash_image_bytes", TEXT: "hash_text", CAPTION: "hash_caption"}


def hash_split(model_directory: str | Path, examples_uri: str, split: str) -> CodedItems:
    """Hashes both modalities of one split of raw Examples.

    Args:
        model_directory: an exported SavedModel.
        examples_uri: an Examples artifact.
        split: its split.

    Returns:
        Codes and labels in the order of the split.

    Raises:
        ValueError: if the model does not take what the Examples hold.
    """
    signatures = tf.saved_model.load(str(model_directory)).signatures
    reusable = _reusable_features(Path(model_directory), Path(examples_uri))
    image_codes: list[np.ndarray] = []
    text_codes: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    positions: list[int] = []
    for rows in _batches(read_raw(examples_uri, split)):
        for row, (made, vector) in itertools.product(rows, reusable.items()):
            if made in row:
                row[vector] = row[made]
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


def _reusable_features(model_directory: Path, examples_uri: Path) -> dict[str, str]:
    """Which of the Examples' features the model would compute itself: {their name: that of its input}.

    Hashing them instead of pictures and captions spares the networks' time.
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


def input_of(row: dict[str, Any], names: tuple[str, str]) -> str:
    """Which of a vector and a raw input is hashed: the vector if there is one."""
    return names[0] if names[0] in row else names[1]


def unpack_code_bytes(code_bytes: np.ndarray) -> np.ndarray:
    """An array of byte strings [B] -> uint8 [B, L/8]."""
    return np.stack([np.frombuffer(code, np.uint8) for code in code_bytes])


def _codes(signatures: Any, rows: list[dict[str, Any]], names: tuple[str, str]) -> np.ndarray:
    name = input_of(rows[0], names)
    if _SIGNATURES[name] not in signatures:
        raise ValueError(f"The model must have the signature {_SIGNATURES[name]}. Received: {', '.join(signatures)}.")
    values = tf.constant([row[name] for row in rows])
    outputs = signatures[_SIGNATURES[name]](**{name: values})
    return unpack_code_bytes(outputs["code_bytes"].numpy())


def _batches(rows: Iterable[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _ROWS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
