"""Records that hold vectors as an .npz file, written without ever holding all vectors in memory."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from cmimh_tf.atomic import atomic_write
from cmimh_tf.data.records import DataError, PairReader
from cmimh_tf.data.vector_pairs import checked_vectors, official_marks, shown_caption, with_trace

_STREAMED = ("image", "text", "labels")
_COPY_BYTES = 1 << 20


def write_vectors(reader: PairReader, path: Path) -> None:
    """Writes what `load_npz` reads as the same pairs that `load_vectors` gives.

    Rows go to one temporary file for each array, which have no name and so do not outlive the process; ids and captions
    stay in memory.

    Args:
        reader: of vectors.
        path: the .npz to write; it appears only when it is complete.

    Raises:
        DataError: naming the first record that has no vector, or one of another width.
    """
    index = reader.index()
    num_pairs = int(index.is_used().sum())
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryFile(dir=path.parent) as image,
        tempfile.TemporaryFile(dir=path.parent) as text,
        tempfile.TemporaryFile(dir=path.parent) as labels,
    ):
        rows = dict(zip(_STREAMED, (image, text, labels), strict=True))
        strings, widths = _spread(reader, rows)
        whole: dict[str, Any] = dict(strings)
        whole["is_query"], whole["is_train"] = official_marks(index)
        if index.classes and "labels" in widths:
            whole["classes"] = np.array(index.classes)
        with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, width in widths.items():
                dtype = np.dtype(np.uint8 if name == "labels" else np.float32)
                _copy(archive, name, rows[name], (num_pairs, width), dtype)
            for name, array in whole.items():
                if array is not None:
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _spread(reader: PairReader, rows: Mapping[str, IO[bytes]]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Appends the rows of each array to its file; returns the strings, and the widths of the arrays that there are."""
    ids, captions = [], []
    widths: dict[str, int] = {}
    for record in checked_vectors(reader):
        ids.append(record.id)
        captions.append(shown_caption(record))
        for name in ("image", "text"):
            vector = np.asarray(getattr(record, name), np.float32)
            widths[name] = len(vector)
            rows[name].write(with_trace(vector[np.newaxis]).tobytes())
        labels = np.zeros(0, np.uint8) if record.labels is None else record.labels
        if len(labels) != widths.setdefault("labels", len(labels)):
            raise DataError(
                f"{record.place}: `labels` must have {widths['labels']} values, as in the first record. Received: "
                f"{len(labels)}."
            )
        rows["labels"].write(labels.astype(np.uint8).tobytes())
    if not widths["labels"]:
        del widths["labels"]
    strings = {"ids": ids, **({"captions": captions} if any(captions) else {})}
    return strings, widths


def _copy(archive: zipfile.ZipFile, name: str, rows: IO[bytes], shape: tuple[int, int], dtype: np.dtype) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    rows.seek(0)
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        shutil.copyfileobj(rows, member, _COPY_BYTES)
