"""Damage to files, as failing disks, broken copies and mixed-up backups cause it. Files are changed in place."""

from __future__ import annotations

import os
import random
from pathlib import Path

_ZEROED_BYTES = 512


def truncate(path: Path, rng: random.Random) -> None:
    """Cuts the end off, anywhere."""
    os.truncate(path, rng.randrange(path.stat().st_size))


def empty(path: Path, rng: random.Random) -> None:
    """Leaves nothing but the name."""
    os.truncate(path, 0)


def flip_bit(path: Path, rng: random.Random) -> None:
    """Inverts one bit, anywhere."""
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def zero_block(path: Path, rng: random.Random) -> None:
    """Replaces a block by zeros, as a file system may after a power failure."""
    content = bytearray(path.read_bytes())
    start = rng.randrange(max(1, len(content) - _ZEROED_BYTES))
    content[start : start + _ZEROED_BYTES] = bytes(len(content[start : start + _ZEROED_BYTES]))
    path.write_bytes(content)


def append(path: Path, rng: random.Random) -> None:
    """Adds bytes at the end."""
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.randint(1, 64)))


def swap(path: Path, other: Path) -> None:
    """Exchanges the contents of two files."""
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


KINDS = {function.__name__: function for function in (truncate, empty, flip_bit, zero_block, append)}


def corrupt(files: list[Path], others: list[Path], rng: random.Random) -> tuple[str, list[Path]]:
    """Damages one of the files, or exchanges it with another one of the same type.

    Args:
        files: one of them is damaged.
        others: further files to exchange one with.
        rng: makes all choices.

    Returns:
        What was done, and to which files.
    """
    path = rng.choice(files)
    others = [other for other in (*files, *others) if other != path and other.suffix == path.suffix]
    others = [other for other in others if other.read_bytes() != path.read_bytes()]
    # Most damage is a flipped bit: it is the hardest to notice.
    kind = rng.choice([*KINDS, "flip_bit", "flip_bit", *(["swap"] if others else [])])
    if kind == "swap":
        other = rng.choice(others)
        swap(path, other)
        return kind, [path, other]
    if path.stat().st_size == 0:
        kind = "append"
    KINDS[kind](path, rng)
    return kind, [path]
