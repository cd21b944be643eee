"""Pairs in `.npz` files: `image` [N, Di], `text` [N, Dt], and optionally the other fields of `PairedData`."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np

from cmimh_tf.data.pairs import DataError, PairedData, check_features, check_ids, check_labels
from cmimh_tf.data.records import PairReader, iterate_vectors, shown_caption, store_parts, with_trace
from cmimh_tf.files import atomic_write, files_fingerprint, write_npz
from cmimh_tf.stored_rows import BLOCK_ROWS

_KEYS = tuple(field.name for field in fields(PairedData))
_REQUIRED_KEYS = ("image", "text")
# The arrays that `records_to_npz` writes row by row.
_STREAMED = ("image", "text", "labels")
_COPY_BYTES = 1 << 20
_MADE_FROM = "made_from"


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


def load_npz_in_parts(path: str | os.PathLike[str]) -> Iterator[PairedData]:
    """As `load_npz`, `BLOCK_ROWS` pairs at a time, with vectors, labels and ids only.

    Raises:
        FileNotFoundError, ValueError: as `load_npz`.
    """
    path = Path(path)
    if not vector_bytes(path):
        yield load_npz(path)
        return
    with zipfile.ZipFile(path) as archive, ExitStack() as stack:
        _check_names(archive, path)
        names = [name for name in _STREAMED if f"{name}.npy" in archive.namelist()]
        columns = {name: stack.enter_context(_MemberRows(archive, name, path)) for name in names}
        num_pairs = columns["image"].shape[0]
        try:
            ids = _small_array(path, "ids")
            ids = None if ids is None else check_ids(ids, num_pairs)
            for start in range(0, num_pairs, BLOCK_ROWS):
                rows = {name: column.read(BLOCK_ROWS) for name, column in columns.items()}
                checked: dict[str, Any] = {
                    name: check_features(rows[name], name, first_row=start) for name in ("image", "text")
                }
                if "labels" in rows:
                    checked["labels"] = check_labels(rows["labels"], len(rows["labels"]), start)
                part_ids = None if ids is None else ids[start : start + BLOCK_ROWS]
                yield PairedData(**checked, ids=part_ids)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error


def store_npz(path: str | os.PathLike[str], folder: Path) -> PairedData:
    """As `load_npz`, with vectors and labels in files of `folder`, and without ids and captions.

    Args:
        path: a file whose `vector_bytes` is not 0.
        folder: as of `cmimh_tf.data.records.store_vectors`.
    """
    path = Path(path)
    columns = store_parts(load_npz_in_parts(path), files_fingerprint([path]), folder)
    masks: dict[str, Any] = {name: _small_array(path, name) for name in ("is_query", "is_train")}
    try:
        return PairedData(**columns, **masks)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def vector_bytes(path: str | os.PathLike[str]) -> int:
    """The size of all vectors as float32, or 0 if the file cannot be read row by row: only `load_npz` can read it, or
    describe what is wrong with it."""
    try:
        with zipfile.ZipFile(path) as archive, ExitStack() as stack:
            names = [name for name in _STREAMED if f"{name}.npy" in archive.namelist()]
            columns = {name: stack.enter_context(_MemberRows(archive, name, Path(path))) for name in names}
            shapes = {name: column.shape for name, column in columns.items()}
    except (OSError, ValueError, zipfile.BadZipFile):
        return 0
    if not set(_REQUIRED_KEYS) <= set(shapes) or len({rows for rows, _ in shapes.values()}) > 1:
        return 0
    return sum(4 * rows * units for rows, units in (shapes[name] for name in _REQUIRED_KEYS))


def save_npz(path: str | os.PathLike[str], data: PairedData) -> None:
    """Writes pairs for `load_npz`. The file appears only when it is complete."""
    arrays = {key: getattr(data, key) for key in _KEYS}
    write_npz(path, **{key: array for key, array in arrays.items() if array is not None})


def records_to_npz(reader: PairReader, path: Path, made_from: Mapping[str, Any] | None = None) -> None:
    """Writes the vectors of a source to an `.npz` without holding all of them in memory.

    `load_npz` of the file equals `load_vectors` of the reader. Rows are collected in unnamed temporary files, one per
    array, which the operating system removes with the process. Ids and captions stay in memory.

    Args:
        reader: a source of vectors.
        path: the `.npz` to write; it appears only when it is complete.
        made_from: what determines the vectors, as values for JSON; `read_made_from` finds it in the file.

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
        if made_from is not None:
            whole[_MADE_FROM] = np.array(json.dumps(made_from))
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


def read_made_from(path: Path) -> dict[str, Any]:
    """The `made_from` of a file that `records_to_npz` wrote; {} for any other file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = json.loads(str(archive[_MADE_FROM]))
    # Other files raise errors of many kinds.
    except Exception:
        return {}
    return found if isinstance(found, dict) else {}


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
        _check_names(archive.zip, path)
        for key in _REQUIRED_KEYS:
            if key not in archive.files:
                raise ValueError(
                    f"{path}: must contain `{key}`. "
                    f"Received: keys {', '.join(archive.files) or 'none'}.{similar_names(key, archive.files)}"
                )
        return {key: _read_array(archive, key, path) for key in _KEYS if key in archive.files}


def _check_names(archive: zipfile.ZipFile, path: Path) -> None:
    """Opens each member, which compares its name in the directory at the end of the file with that before its bytes.

    A damaged name would otherwise look like an array that is not there.
    """
    try:
        for member in archive.infolist():
            archive.open(member).close()
    except Exception as error:
        raise ValueError(f"{path}: is damaged ({error}).") from error


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


class _MemberRows:
    """The rows of a matrix in an .npz, from the first to the last.

    Raises:
        ValueError: if the member is not a matrix of numbers in C order.
    """

    def __init__(self, archive: zipfile.ZipFile, name: str, path: Path):
        self._name, self._path = name, path
        self._file = archive.open(f"{name}.npy")
        version = np.lib.format.read_magic(self._file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"`{name}` must be of version 1.0 or 2.0 of NumPy's format. Received: {version}.")
        self.shape, is_fortran, self.dtype = read_header(self._file)
        if len(self.shape) != 2 or 0 in self.shape or is_fortran or self.dtype.kind not in "biuf":
            raise ValueError(f"`{name}` must be a matrix of numbers in C order. Received: {self.shape}, {self.dtype}.")

    def __enter__(self) -> _MemberRows:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, count: int) -> np.ndarray:
        """The next `count` rows, or those that are left."""
        row_bytes = self.shape[1] * self.dtype.itemsize
        try:
            content = self._file.read(count * row_bytes)
            return np.frombuffer(content, self.dtype).reshape(-1, self.shape[1])
        except Exception as error:
            raise ValueError(f"`{self._name}` cannot be read, the file is truncated or damaged ({error}).") from error


def _small_array(path: Path, key: str) -> np.ndarray | None:
    """An array of one value per pair, or None."""
    with np.load(path, allow_pickle=False) as archive:
        return _read_array(archive, key, path) if key in archive.files else None


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
