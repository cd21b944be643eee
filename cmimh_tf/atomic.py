"""Files that are either there in full or not there: written under a temporary name, then renamed.

A reader, a second writer or a killed process never sees half a file. Missing parent folders are created.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yields a binary file that takes the place of `path` when the block ends, and vanishes if it raises.

    A symbolic link stays one, its target is replaced; what is no regular file (`/dev/null`, a pipe) is
    written directly.

    Example:
        >>> with atomic_write("codes.bin") as file:
        ...     file.write(b"0123")
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"`path` must name a file. Received: a folder, {os.fspath(path)!r}.")
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        with target.open("wb") as file:
            yield file
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # A fixed short name, not one grown from the target's: that may already be as long as the file system
    # allows.
    temporary = target.parent / f".tmp-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        # Unlike tempfile's, this file gets the permissions that the user's umask asks for.
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to `path` atomically."""
    with atomic_write(path) as file:
        file.write(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` to `path` atomically, as UTF-8 with its line ends as they are."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes `value` to `path` atomically, indented, in its own key order; NumPy values become plain ones.

    Raises:
        TypeError: if something in `value` has no JSON form.
        ValueError: if `value` holds a NaN or an infinity, which JSON lacks.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=_plain) + "\n")


def write_npz(path: str | os.PathLike[str], /, **arrays: Any) -> None:
    """Writes arrays to `path` atomically as an uncompressed `.npz`; the name is taken as it is, without a
    suffix added.

    Raises:
        TypeError: if an array holds Python objects, which could only be pickled.
    """
    converted = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in converted.items():
        if array.dtype.hasobject:
            raise TypeError(f"`{name}` must be an array of numbers or strings. Received: {name}.dtype={array.dtype}.")
    with atomic_write(path) as file:
        np.savez(file, **converted)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"`value` must be made of what JSON can hold. Received: {value!r} of type {type(value).__name__}.")


def _sync_folder(folder: Path) -> None:
    # Without it the new name may be lost in a power failure. Not every file system can do it.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
