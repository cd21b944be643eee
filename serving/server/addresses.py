"""TF Serving's REST addresses: what a method and a path name."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from serving.server.errors import ServingError, invalid_argument

METRICS_PATH = "/monitoring/prometheus/metrics"
READY_PATH = "/readyz"
_MODEL = rb"(?i:/v1/models)/([^/:]+)(?:/(?i:versions)/(\d+)|/(?i:labels)/([^/:]+))?"
_PREDICT = re.compile(_MODEL + rb":(?i:(predict|classify|regress))")
_STATUS = re.compile(_MODEL + rb"(/(?i:metadata))?")
_MAX_VERSION = 2**63 - 1
_MAX_LENGTH = 1024
_MAX_SHOWN = 200


@dataclass(frozen=True)
class Target:
    """What an address names.

    Attributes:
        method: "ready", "metrics", "predict", "classify", "regress", "metadata" or "status".
        model: its name; empty for what belongs to no model.
        version, label: at most one of them.
    """

    method: str
    model: str = ""
    version: int | None = None
    label: str | None = None


_FIXED = {READY_PATH.encode(): Target("ready"), METRICS_PATH.encode(): Target("metrics")}


def find_target(method: str, path: bytes) -> Target:
    """What the address names.

    Args:
        method: of HTTP.
        path: as it was sent, without a query.

    Raises:
        ServingError: INVALID_ARGUMENT if nothing can be at this address, NOT_FOUND outside of /v1/.
    """
    target = _parse(method, path) if len(path) <= _MAX_LENGTH else None
    if target is None:
        shown = path[:_MAX_SHOWN].decode("ascii", "replace")
        if not path.lower().startswith(b"/v1/"):
            raise ServingError("NOT_FOUND", f"There is nothing at {shown}")
        raise invalid_argument(f"Malformed request: {method} {shown}")
    if target.version is not None and target.version > _MAX_VERSION:
        raise invalid_argument(f"Failed to convert version: {target.version} to numeric.")
    return target


@functools.lru_cache(maxsize=256)
def _parse(method: str, path: bytes) -> Target | None:
    if method == "GET" and path in _FIXED:
        return _FIXED[path]
    match = (_PREDICT if method == "POST" else _STATUS).fullmatch(path) if method in ("GET", "POST") else None
    if match is None:
        return None
    name, version, label, action = match.groups()
    return Target(
        method=action.lower().decode().strip("/") if action else "status",
        model=_unquote(name),
        version=None if version is None else int(version),
        label=None if label is None else _unquote(label),
    )


def _unquote(text: bytes) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace")
