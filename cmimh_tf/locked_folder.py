"""A lock on a folder that goes with its process, however that ends."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = ".lock"


@contextmanager
def locked_folder(folder: Path, in_use: Callable[[str], Exception]) -> Iterator[None]:
    """Holds a folder, which is made if it is not there, for this process.

    Args:
        folder: the folder.
        in_use: makes the exception to raise if another process holds it, from that process's number.

    Raises:
        Exception: that of `in_use`.
    """
    folder.mkdir(parents=True, exist_ok=True)
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
