"""The tf.Examples that travel between components: the names of their features, and how to read them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cmimh_tf import stored_rows
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.data.records import DataError, with_trace
from cmimh_tf.files import remove_folder

IMAGE = "image"
IMAGE_BYTES = "image_bytes"
TEXT = "text"
CAPTION = "caption"
# Vectors that a network computed from `image_bytes` and `caption`, once, in ExampleGen.
IMAGE_FEATURES = "image_features"
CAPTION_FEATURES = "caption_features"
LABELS = "labels"
ID = "id"
# The row within its split. Beam writes rows in any order; training in the order of the split gives the same model as
# `python -m cmimh_tf.train`.
POSITION = "position"

TRAIN, DATABASE, QUERY = SPLITS = ("train", "database", "query")

_READ_BATCH_SIZE = 1024


def split_files(uri: str, split: str) -> list[str]:
    """The files of one split of an Examples artifact."""
    return sorted(glob.glob(os.path.join(uri, f"Split-{split}", "*")))


def load_transformed(
    files: Sequence[str], feature_spec: dict[str, Any], large_data_folder: Path | None = None
) -> PairedData:
    """Loads the transformed pairs of one split, in the order of the split.

    Args:
        files: GZIP TFRecords of transformed Examples, or patterns of them.
        feature_spec: of the transformed features, from the Transform graph.
        large_data_folder: where the vectors and labels of files above `cmimh_tf.stored_rows.IN_MEMORY_BYTES` are
            written, to be read row by row; an earlier one is replaced. None loads all files into memory.

    Raises:
        DataError: if the split is empty, or a vector is not finite, as when all training rows are equal.
    """
    paths = sorted(path for pattern in files for path in glob.glob(pattern))
    ids: list[str] = []
    positions: list[int] = []
    blocks = _transformed_blocks(paths, feature_spec, ids, positions)
    columns: dict[str, Any]
    if large_data_folder is not None and sum(map(os.path.getsize, paths)) > stored_rows.IN_MEMORY_BYTES:
        remove_folder(large_data_folder)
        columns = dict(stored_rows.store_rows(large_data_folder, blocks))
    else:
        found = list(blocks)
        columns = {name: np.concatenate([block[name] for block in found]) for name in (found[0] if found else ())}
    if not ids:
        raise DataError(f"A split must not be empty. Received: no records in {', '.join(files) or 'no files'}.")
    return PairedData(**columns, ids=np.array(ids)).take(np.argsort(positions))


def _transformed_blocks(
    paths: Sequence[str], feature_spec: dict[str, Any], ids: list[str], positions: list[int]
) -> Iterator[dict[str, np.ndarray]]:
    """Yields vectors and labels, and appends to `ids` and `positions`."""
    records = tf.data.TFRecordDataset(paths, "GZIP").batch(_READ_BATCH_SIZE)
    for batch in records.map(lambda serialized: tf.io.parse_example(serialized, feature_spec)).as_numpy_iterator():
        ids += [value.decode("utf-8") for value in batch[ID].ravel()]
        positions += batch[POSITION].ravel().tolist()
        for name in (IMAGE, TEXT):
            if not np.isfinite(batch[name]).all():
                raise DataError(f"`{name}` must vary between training rows. Received: rows that are all equal.")
        # A centred row may be all zeros, which is not a mistake.
        block = {name: with_trace(batch[name]) for name in (IMAGE, TEXT)}
        yield {**block, LABELS: batch[LABELS].astype(np.uint8)} if LABELS in batch else block


def read_raw(uri: str, split: str) -> Iterator[dict[str, Any]]:
    """Reads the raw Examples of one split, in any order.

    Yields:
        Dicts with `id`, `position` and the features of the pair: floats as float32 arrays, pictures as bytes, captions
        and ids as strings.
    """
    for serialized in tf.data.TFRecordDataset(split_files(uri, split), "GZIP").as_numpy_iterator():
        yield parse_raw(serialized)


def read_raw_rows(uri: str, split: str, positions: Iterable[int]) -> list[dict[str, Any]]:
    """Reads the raw Examples at some positions of a split, in the order of `positions`."""
    wanted = list(positions)
    found = {int(row[POSITION]): row for row in read_raw(uri, split) if int(row[POSITION]) in set(wanted)}
    return [found[position] for position in wanted]


def parse_raw(serialized: bytes) -> dict[str, Any]:
    """Parses one raw Example."""
    row: dict[str, Any] = {}
    for name, feature in tf.train.Example.FromString(serialized).features.feature.items():
        if name in (IMAGE, IMAGE_FEATURES, TEXT, CAPTION_FEATURES):
            row[name] = np.array(feature.float_list.value, np.float32)
        elif name in (CAPTION, ID):
            row[name] = feature.bytes_list.value[0].decode("utf-8", "replace")
        elif name == IMAGE_BYTES:
            row[name] = feature.bytes_list.value[0]
        elif name == POSITION:
            row[name] = feature.int64_list.value[0]
        elif name == LABELS:
            row[name] = np.array(feature.int64_list.value, np.uint8)
    return row
