"""Matrices in files, read row by row: what training uses in place of arrays that are too large for memory."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.checksums import CHECKSUM_FILE, verify_folder, write_folder_checksums
from cmimh_tf.files import atomic_folder

# Rows in memory at a time, wherever a matrix is read from its first row to its last.
BLOCK_ROWS = 1024
# Vectors of more bytes than this stay in files; 512 MB are 80,000 pairs of 1280 and 384 floats.
IN_MEMORY_BYTES = 512 * 1024 * 1024


class StoredRows:
    """A matrix in an .npy file. Rows are read when they are asked for, and are not kept.

    Rows are read and not mapped: mapped pages count as memory of the process for as long as the system has room.

    Args:
        path: an .npy file of two dimensions, in C order.

    Attributes:
        shape, dtype, ndim: as of an array.

    Example:
        >>> np.save("image.npy", image)
        >>> vectors = StoredRows("image.npy")
        >>> tenth = vectors[10:20]  # an array of ten rows
        >>> some = vectors.take([7, 3])  # two rows, still in the file
        >>> some[:].shape == (2, vectors.shape[1])
        True
    """

    ndim = 2

    def __init__(self, path: str | os.PathLike[str]):
        with Path(path).open("rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError(f"{path}: must be an .npy file of version 1.0.")
            shape, is_fortran, self.dtype = np.lib.format.read_array_header_1_0(file)
            if len(shape) != 2 or is_fortran:
                raise ValueError(f"{path}: must have two dimensions, in C order. Received: shape {shape}.")
            self.shape: tuple[int, int] = shape
            self._offset = file.tell()
        self._file = _OpenFile(path)
        self._rows: np.ndarray | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: Any) -> StoredRows:
        """The given rows, in that order, without reading them."""
        view = copy.copy(self)
        rows = np.asarray(rows, np.int64)
        view._rows = rows if self._rows is None else self._rows[rows]
        view.shape = (len(rows), self.shape[1])
        return view

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Reads a slice, or an array of row numbers."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        rows = np.asarray(rows, np.int64)
        return self._read(rows if self._rows is None else self._rows[rows])

    def __array__(self, dtype: Any = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def _read(self, rows: np.ndarray) -> np.ndarray:
        """Reads rows of the file, each run of consecutive ones at once, in the order of the file."""
        if not len(rows):
            return np.empty((0, self.shape[1]), self.dtype)
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        row_bytes, target = found.strides[0], found.data.cast("B")
        starts = [0, *(np.flatnonzero(np.diff(wanted) != 1) + 1).tolist(), len(rows)]
        for start, stop, row in zip(starts, starts[1:], wanted[starts[:-1]].tolist(), strict=False):
            part = target[start * row_bytes : stop * row_bytes]
            if os.preadv(self._file.descriptor, [part], self._offset + row * row_bytes) != len(part):
                raise OSError(f"{self._file.path}: ends before row {row + stop - start - 1}.")
        if np.array_equal(rows, wanted):
            return found
        placed = np.empty_like(found)
        placed[order] = found
        return placed


class _OpenFile:
    """A file that is closed when the last of the views that share it is deleted."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path, self.descriptor = path, os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self.descriptor)


Rows = np.ndarray | StoredRows


def take_rows(values: Rows, rows: Any) -> Rows:
    """Some rows in the given order: of an array as an array, of stored rows without reading them."""
    return values.take(rows) if isinstance(values, StoredRows) else values[rows]


def read_blocks(values: Rows) -> Iterable[np.ndarray]:
    """All rows, as arrays of `BLOCK_ROWS` rows."""
    for start in range(0, len(values), BLOCK_ROWS):
        yield np.asarray(values[start : start + BLOCK_ROWS])


def store_rows(folder: Path, blocks: Iterable[Mapping[str, np.ndarray]]) -> dict[str, StoredRows]:
    """Writes matrices block by block, one .npy file each. The folder appears when all of them are complete.

    Args:
        folder: a new folder.
        blocks: the next rows of each matrix, by its name; the same names and widths in every block.

    Returns:
        The matrices by their names.
    """
    count, files, headers = 0, {}, {}
    with atomic_folder(folder) as temporary:
        with ExitStack() as stack:
            for block in blocks:
                for name, rows in block.items():
                    if name not in files:
                        files[name] = stack.enter_context((temporary / f"{name}.npy").open("wb"))
                        headers[name] = {"descr": rows.dtype.str, "fortran_order": False, "shape": (0, rows.shape[1])}
                        np.lib.format.write_array_header_1_0(files[name], headers[name])
                    files[name].write(np.ascontiguousarray(rows).data)
                count += len(rows)
            for name, file in files.items():
                # NumPy leaves room in the header for any number of rows.
                file.seek(0)
                headers[name]["shape"] = (count, headers[name]["shape"][1])
                np.lib.format.write_array_header_1_0(file, headers[name])
        write_folder_checksums(temporary, temporary / CHECKSUM_FILE)
    return _matrices(folder)


def open_rows(folder: Path) -> dict[str, StoredRows]:
    """The matrices of a folder that `store_rows` wrote.

    Raises:
        DamagedFile: if a file is missing, or not what was written.
    """
    verify_folder(folder, folder / CHECKSUM_FILE)
    return _matrices(folder)


def _matrices(folder: Path) -> dict[str, StoredRows]:
    return {path.stem: StoredRows(path) for path in sorted(folder.glob("*.npy"))}
