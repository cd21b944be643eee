"""Atomic writes of files and folders, with checksums where damage must be noticed, and a lock on a folder.

A reader, a second writer or a killed process never sees half a file. Missing parent folders are created.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from cmimh_tf.checksums import DamagedFile, append_checksum, damage_message, sha256, verify

# Begins the names of temporary files and folders; a process that was killed leaves some behind.
TEMPORARY_PREFIX = ".tmp-"
_HASH_BYTES = 1 << 20


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, checksum: bool = False) -> Iterator[IO[bytes]]:
    """Yields a binary file that takes the place of `path` when the block ends, and vanishes if it raises.

    The target of a symbolic link is replaced, not the link. Special files (`/dev/null`, a pipe) are written directly.

    Args:
        path: the file to replace.
        checksum: whether to list its checksum, for `cmimh_tf.checksums.verify`.

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
    # Unlike tempfile's, this file gets the permissions that the user's umask asks for.
    with atomic_path(target, checksum=checksum) as temporary, temporary.open("xb") as file:
        yield file


@contextmanager
def atomic_path(path: str | os.PathLike[str], suffix: str = "", *, checksum: bool = False) -> Iterator[Path]:
    """Yields a temporary path for a writer that wants a file name; the file replaces `path` when the block ends.

    Args:
        path: the file to replace.
        suffix: ends the temporary name, for writers that choose the format by it, such as ".keras".
        checksum: whether to list its checksum, for `cmimh_tf.checksums.verify`.

    Example:
        >>> with atomic_path("runs/mine/model.keras", suffix=".keras") as temporary:
        ...     model.save(temporary)
    """
    target = Path(os.path.realpath(path))
    temporary = _temporary_beside(target, suffix)
    try:
        yield temporary
        _sync(temporary)
        if checksum:
            append_checksum(target, sha256(temporary))
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(FileNotFoundError):
            temporary.unlink()
        # h5py's error when it closes a file on a full disk.
        if isinstance(error, RuntimeError) and os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path)) from error
        raise
    _sync(target.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields an empty temporary folder that becomes `path` when the block ends, and vanishes if it raises.

    Raises:
        FileExistsError: if `path` is there already; a folder cannot be replaced in one step.

    Example:
        >>> with atomic_folder("serving_model/cmimh/3") as temporary:
        ...     shutil.copytree(export, temporary, dirs_exist_ok=True)
    """
    target = Path(os.path.realpath(path))
    if target.exists():
        raise FileExistsError(f"`path` must not exist yet. Received: {os.fspath(path)!r}.")
    temporary = _temporary_beside(target)
    try:
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            _sync(file)
        # Onto an empty folder that another process made meanwhile, rename would succeed.
        if target.exists():
            raise FileExistsError(f"`path` must not exist yet. Received: {os.fspath(path)!r}.")
        os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(target.parent)


def check_not_input(out: str | os.PathLike[str], given: str | os.PathLike[str]) -> None:
    """Raises ValueError if an output would replace the file or folder that it is made from."""
    if os.path.exists(out) and os.path.exists(given) and os.path.samefile(out, given):
        raise ValueError(f"`out` must not be the input. Received: {os.fspath(out)}.")


def remove_folder(path: str | os.PathLike[str]) -> None:
    """Deletes a folder with all it holds; a kill in the middle leaves no half of it under its name."""
    folder = Path(path)
    if not folder.exists():
        return
    doomed = _temporary_beside(folder)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def write_bytes(path: str | os.PathLike[str], data: bytes, *, checksum: bool = False) -> None:
    """Writes `data` to `path` atomically."""
    with atomic_write(path, checksum=checksum) as file:
        file.write(data)


def write_text(path: str | os.PathLike[str], text: str, *, checksum: bool = False) -> None:
    """Writes `text` to `path` atomically, as UTF-8 with its line ends as they are."""
    write_bytes(path, text.encode("utf-8"), checksum=checksum)


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file that `write_text` wrote.

    Raises:
        DamagedFile: if the content is not what was written, as far as it can be told.
    """
    verify(path)
    try:
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFile(damage_message(path, str(error))) from error


def write_json(path: str | os.PathLike[str], value: Any, *, checksum: bool = False) -> None:
    """Writes `value` to `path` atomically, indented, in its own key order; NumPy values become plain ones.

    Raises:
        TypeError: if something in `value` has no JSON form.
        ValueError: if `value` holds a NaN or an infinity, which JSON lacks.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"
    write_text(path, text, checksum=checksum)


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The object in a file that `write_json` wrote.

    Raises:
        DamagedFile: if the content is not what was written, as far as it can be told, or not a JSON object.
    """
    try:
        value = json.loads(read_text(path))
        if not isinstance(value, dict):
            raise ValueError("it must be a JSON object")
    except DamagedFile:
        raise
    except ValueError as error:
        raise DamagedFile(damage_message(path, str(error))) from error
    return value


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


def _temporary_beside(target: Path, suffix: str = "") -> Path:
    _make_folder(target.parent)
    # A fixed short name, not one grown from the target's: that may already be as long as the file system allows.
    return target.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}{suffix}"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
        raise NotADirectoryError(f"{file} must be a folder to write to. Received: a file.") from error


def _sync(path: Path) -> None:
    # Without it, contents or the new name may be lost in a power failure. Not every file system can do it to a folder.
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


LOCK_FILE = ".lock"


@contextmanager
def locked_folder(folder: Path, in_use: Callable[[str], Exception]) -> Iterator[None]:
    """Holds a folder, which is made if it is not there, for this process.

    Args:
        folder: the folder.
        in_use: makes the exception to raise if another process holds it, from that process's number.

    Raises:
        Exception: that of `in_use`.
        NotADirectoryError: if the path, or a folder above it, is a file.
    """
    _make_folder(folder)
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise in_use(os.pread(descriptor, 32, 0).decode() or "unknown") from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def files_fingerprint(contents: Iterable[Path], stats: Mapping[str, Path] | None = None) -> str:
    """16 hexadecimal digits that change with the contents of some files, or the names, sizes and times of others.

    Args:
        contents: files whose bytes are hashed.
        stats: large files by a name: the name, the size and the time of the last change are hashed.
    """
    digest = hashlib.sha256()
    for path in contents:
        with path.open("rb") as file:
            while block := file.read(_HASH_BYTES):
                digest.update(block)
    for name, path in sorted((stats or {}).items()):
        stat = path.stat() if path.exists() else None
        digest.update(f"{name}:{stat and (stat.st_size, stat.st_mtime_ns)}".encode())
    return digest.hexdigest()[:16]
