"""Pairs in `.npz` files: `image` [N, Di], `text` [N, Dt], and optionally the other fields of `PairedData`."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np

from cmimh_tf.data.pairs import DataError, PairedData
from cmimh_tf.data.records import PairReader, iterate_vectors, shown_caption, with_trace
from cmimh_tf.files import atomic_write, write_npz

_KEYS = tuple(field.name for field in fields(PairedData))
_REQUIRED_KEYS = ("image", "text")
# The arrays that `records_to_npz` writes row by row.
_STREAMED = ("image", "text", "labels")
_COPY_BYTES = 1 << 20


def load_npz(path: str | os.PathLike[str]) -> PairedData:
    """Reads and checks a file of pairs. Keys that `PairedData` does not have are ignored.

    Nothing is unpickled, so files from unknown sources are safe to read.

    Raises:
        FileNotFoundError: if there is no such file; the message suggests similar names.
        ValueError: if the file is not an `.npz`, is damaged, lacks a key or holds a wrong value; the message names the
            file, the key and the first wrong row.
    """
    path = Path(path)
    arrays = _read_arrays(path)
    if "labels" not in arrays:
        arrays.pop("classes", None)
    try:
        return PairedData(**arrays)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def save_npz(path: str | os.PathLike[str], data: PairedData) -> None:
    """Writes pairs for `load_npz`. The file appears only when it is complete."""
    arrays = {key: getattr(data, key) for key in _KEYS}
    write_npz(path, **{key: array for key, array in arrays.items() if array is not None})


def records_to_npz(reader: PairReader, path: Path) -> None:
    """Writes the vectors of a source to an `.npz` without holding all of them in memory.

    `load_npz` of the file equals `load_vectors` of the reader. Rows are collected in unnamed temporary files, one per
    array, which the operating system removes with the process. Ids and captions stay in memory.

    Args:
        reader: a source of vectors.
        path: the `.npz` to write; it appears only when it is complete.

    Raises:
        DataError: naming the first record that has no vector, or a vector of another width.
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
        strings, widths = _write_rows(reader, rows)
        whole: dict[str, Any] = dict(strings)
        whole["is_query"], whole["is_train"] = index.official_masks()
        if index.classes and "labels" in widths:
            whole["classes"] = np.array(index.classes)
        with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, width in widths.items():
                dtype = np.dtype(np.uint8 if name == "labels" else np.float32)
                _copy_rows(archive, name, rows[name], (num_pairs, width), dtype)
            for name, array in whole.items():
                if array is not None:
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def similar_names(wanted: str, names: Iterable[str]) -> str:
    """ " Did you mean ...?" with the most similar of `names`, or ""."""
    by_lower_case = {name.lower(): name for name in sorted(names)}
    nearest = difflib.get_close_matches(wanted.lower(), by_lower_case, n=3)
    return f" Did you mean {' or '.join(by_lower_case[name] for name in nearest)}?" if nearest else ""


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        raise FileNotFoundError(_missing_file_message(path))
    if not path.is_file():
        raise ValueError(f"{path}: must be an .npz file. Received: a folder or a device.")
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path}: must be an .npz file. Received: {_describe_content(path)}.")
        file.seek(0)
        try:
            archive = np.load(file, allow_pickle=False)
        # Damaged bytes raise errors of many kinds: zipfile's, zlib's, struct's, NumPy's.
        except Exception as error:
            raise ValueError(f"{path}: is damaged ({error}).") from error
        for key in _REQUIRED_KEYS:
            if key not in archive.files:
                raise ValueError(
                    f"{path}: must contain `{key}`. "
                    f"Received: keys {', '.join(archive.files) or 'none'}.{similar_names(key, archive.files)}"
                )
        return {key: _read_array(archive, key, path) for key in _KEYS if key in archive.files}


def _read_array(archive: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
    try:
        array = archive[key]
    except MemoryError:
        raise
    except Exception as error:
        if "allow_pickle" in str(error):
            raise ValueError(
                f"{path}: `{key}` must hold numbers or strings. Received: dtype=object, pickled."
            ) from error
        raise ValueError(f"{path}: `{key}` cannot be read, the file is truncated or damaged ({error}).") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path}: `{key}` must be an array in NumPy's format. Received: {len(array)} other bytes.")
    return array


def _describe_content(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(6)
    if not start:
        return "an empty file"
    if start.startswith(b"PK"):
        return "a truncated or damaged one"
    if start == b"\x93NUMPY":
        return "a single array (.npy)"
    return f"a file that begins with {start!r}"


def _missing_file_message(path: Path) -> str:
    if path.parent.is_dir():
        return f"{path} does not exist.{similar_names(path.name, os.listdir(path.parent))}"
    return f"{path} does not exist: there is no folder {path.parent}."


def _write_rows(reader: PairReader, rows: Mapping[str, IO[bytes]]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Appends the rows of each array to its file. Returns the strings, and the widths of the arrays that exist."""
    ids, captions = [], []
    widths: dict[str, int] = {}
    for record in iterate_vectors(reader):
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


def _copy_rows(archive: zipfile.ZipFile, name: str, rows: IO[bytes], shape: tuple[int, int], dtype: np.dtype) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    rows.seek(0)
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        shutil.copyfileobj(rows, member, _COPY_BYTES)
