"""Reads what components wrote: transformed pairs as arrays, and raw Examples one by one."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cmimh_tf.data.paired import PairedData
from cmimh_tf.data.vector_pairs import with_trace
from pipeline.features import CAPTION, CAPTION_FEATURES, ID, IMAGE, IMAGE_BYTES, IMAGE_FEATURES, LABELS, POSITION, TEXT
from pipeline.sources import DataError

_ROWS_AT_ONCE = 1024


def split_files(uri: str, split: str) -> list[str]:
    """The files of one split of an Examples artifact."""
    return sorted(glob.glob(os.path.join(uri, f"Split-{split}", "*")))


def load_transformed(files: Sequence[str], feature_spec: dict[str, Any]) -> PairedData:
    """The transformed pairs of one split, in the order of the split.

    Args:
        files: GZIP TFRecords of transformed Examples, or patterns of them.
        feature_spec: of the transformed features, from the Transform graph.

    Raises:
        DataError: if a vector is not finite, as when all training rows are equal.
    """
    columns: dict[str, list[np.ndarray]] = {name: [] for name in feature_spec}
    paths = sorted(path for pattern in files for path in glob.glob(pattern))
    records = tf.data.TFRecordDataset(paths, "GZIP").batch(_ROWS_AT_ONCE)
    for batch in records.map(lambda serialized: tf.io.parse_example(serialized, feature_spec)):
        for name, values in batch.items():
            columns[name].append(values.numpy())
    if not columns[POSITION]:
        raise DataError(f"A split must not be empty. Received: no records in {', '.join(files) or 'no files'}.")
    arrays = {name: np.concatenate(blocks) for name, blocks in columns.items()}
    order = np.argsort(arrays[POSITION].ravel())
    for name in (IMAGE, TEXT):
        if not np.isfinite(arrays[name]).all():
            raise DataError(f"`{name}` must vary between training rows. Received: rows that are all equal.")
    return PairedData(
        # A centred row may be the centre, which is no mistake.
        image=with_trace(arrays[IMAGE][order]),
        text=with_trace(arrays[TEXT][order]),
        labels=arrays[LABELS][order].astype(np.uint8) if LABELS in arrays else None,
        ids=np.array([value.decode("utf-8") for value in arrays[ID].ravel()[order]]),
    )


def read_raw(uri: str, split: str) -> Iterator[dict[str, Any]]:
    """The raw Examples of one split in any order: `id` and `position`, and what there is of the inputs.

    Yields:
        Floats as float32 arrays, pictures as bytes, captions and ids as strings.
    """
    for serialized in tf.data.TFRecordDataset(split_files(uri, split), "GZIP").as_numpy_iterator():
        yield parse_raw(serialized)


def read_raw_rows(uri: str, split: str, positions: Iterable[int]) -> list[dict[str, Any]]:
    """The raw Examples at some positions of a split, in the order asked for."""
    wanted = list(positions)
    found = {int(row[POSITION]): row for row in read_raw(uri, split) if int(row[POSITION]) in set(wanted)}
    return [found[position] for position in wanted]


def parse_raw(serialized: bytes) -> dict[str, Any]:
    """One raw Example, with its serialized form under `serialized`."""
    row: dict[str, Any] = {"serialized": serialized}
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
