"""Checksums of files, in a list beside them, so that a damaged or exchanged file is noticed when it is read.

A list is a file .checksums.sha256 with a line per file, as the command sha256sum writes it: the SHA-256 of the content
and the name. Lines are only ever appended, before the file gets its name: writers need no lock, and a kill between the
two steps does no harm, because a file that was replaced may match any of its lines. A file without a line, such as one
of an earlier version, is not checked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from pathlib import Path

CHECKSUM_FILE = ".checksums.sha256"
# The folder of an exported model for files that TF Serving does not read.
EXTRA_ASSETS = "assets.extra"
_BLOCK_BYTES = 1 << 20
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


class DamagedFile(ValueError):
    """A file that does not have the content that was written."""


def sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def append_checksum(path: Path, checksum: str) -> None:
    """Adds a line for `path`, which may not exist yet, to the list in its folder."""
    _append(path.parent / CHECKSUM_FILE, f"{checksum}  {path.name}\n")


def verify(path: str | os.PathLike[str]) -> None:
    """Compares a file with the list in its folder.

    Raises:
        DamagedFile: if the file is listed with another content.
    """
    path = Path(path)
    _compare(path, _read(path.parent / CHECKSUM_FILE).get(path.name))


def write_folder_checksums(folder: Path, file: Path) -> None:
    """Lists all files below `folder` in `file`, which may be one of them."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    _append(file, "".join(f"{sha256(path)}  {path.relative_to(folder)}\n" for path in paths))


def verify_folder(folder: Path, file: Path) -> None:
    """Compares all files that `write_folder_checksums` listed.

    Raises:
        DamagedFile: if one of them is missing or has another content.
    """
    for name, checksums in _read(file).items():
        if not (folder / name).is_file():
            raise DamagedFile(f"{folder / name} is missing. Restore it from a copy, or make {folder} again.")
        _compare(folder / name, checksums)


def write_export_checksums(folder: Path) -> None:
    """Lists all files of an exported model in its `assets.extra`."""
    write_folder_checksums(folder, folder / EXTRA_ASSETS / CHECKSUM_FILE)


def verify_export(folder: Path) -> None:
    """Compares all files of an exported model; raises as `verify_folder`."""
    verify_folder(folder, folder / EXTRA_ASSETS / CHECKSUM_FILE)


def _compare(path: Path, checksums: set[str] | None) -> None:
    if checksums is not None and sha256(path) not in checksums:
        raise DamagedFile(damage_message(path, "it does not have the content that was written"))


def damage_message(path: str | os.PathLike[str], reason: str) -> str:
    """The sentence about a damaged file."""
    return f"{os.fspath(path)} is damaged: {reason}. Restore it from a copy, or make it again."


def _read(file: Path) -> dict[str, set[str]]:
    """The checksums of each name."""
    checksums: dict[str, set[str]] = {}
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return checksums
    for line in text.split("\n"):
        # A list that is damaged itself, as by a full disk, has other lines.
        if match := _LINE.fullmatch(line):
            checksums.setdefault(match[2], set()).add(match[1])
    return checksums


def _append(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        data = text.encode("utf-8")
        # In one call, so that the lines of several writers do not mix.
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(file))
    finally:
        os.close(descriptor)
