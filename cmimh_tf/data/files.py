"""Pairs in `.npz` files: `image` [N, Di], `text` [N, Dt], and optionally the other fields of `PairedData`."""

from __future__ import annotations

import difflib
import os
import zipfile
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import numpy as np

from cmimh_tf.atomic import write_npz
from cmimh_tf.data.paired import PairedData

_KEYS = tuple(field.name for field in fields(PairedData))
_REQUIRED_KEYS = ("image", "text")


def load_npz(path: str | os.PathLike[str]) -> PairedData:
    """Reads and checks a file of pairs. Keys that `PairedData` does not have are left alone.

    Nothing is ever unpickled, so a file from anywhere may be read.

    Raises:
        FileNotFoundError: if there is no such file; the message suggests the nearest names.
        ValueError: if the file is no `.npz`, is damaged, lacks a key or holds a bad value; the message names
            the file, the key and the first bad row.
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
    """Writes pairs so that `load_npz` reads the same again; the file appears only when it is complete."""
    arrays = {key: getattr(data, key) for key in _KEYS}
    write_npz(path, **{key: array for key, array in arrays.items() if array is not None})


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        raise FileNotFoundError(_missing_file_message(path))
    if not path.is_file():
        raise ValueError(f"{path}: must be an .npz file. Received: a folder or a device.")
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path}: must be an .npz file. Received: {_what_it_is(path)}.")
        file.seek(0)
        try:
            archive = np.load(file, allow_pickle=False)
        # Damaged bytes surface as errors of many kinds: zipfile's, zlib's, struct's, NumPy's.
        except Exception as error:
            raise ValueError(f"{path}: is damaged ({error}).") from error
        for key in _REQUIRED_KEYS:
            if key not in archive.files:
                raise ValueError(
                    f"{path}: `{key}` must be there. "
                    f"Received: keys {', '.join(archive.files) or 'none'}.{_suggestion(key, archive.files)}"
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


def _what_it_is(path: Path) -> str:
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
        return f"{path} does not exist.{_suggestion(path.name, os.listdir(path.parent))}"
    return f"{path} does not exist: there is no folder {path.parent}."


def _suggestion(wanted: str, names: Iterable[str]) -> str:
    by_lower_case = {name.lower(): name for name in sorted(names)}
    nearest = difflib.get_close_matches(wanted.lower(), by_lower_case, n=3)
    return f" Did you mean {' or '.join(by_lower_case[name] for name in nearest)}?" if nearest else ""
