"""The body of an answer to a REST Predict request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pybase64

from serving.server.batcher import Outputs
from serving.server.servable import Column


def encode_response(outputs: Outputs, row_format: bool) -> bytes:
    """The JSON of the outputs; a single output comes without its name.

    Args:
        outputs: by name, all with the same number of rows.
        row_format: whether the request came in rows, as `instances`.
    """
    columns = {name: _encode_column(name, value) for name, value in outputs.items()}
    if not row_format:
        body = columns if len(columns) > 1 else next(iter(columns.values()))
        return orjson.dumps({"outputs": body}, option=orjson.OPT_SERIALIZE_NUMPY)
    if len(columns) == 1:
        predictions: Any = next(iter(columns.values()))
    else:
        names = tuple(columns)
        predictions = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return orjson.dumps({"predictions": predictions}, option=orjson.OPT_SERIALIZE_NUMPY)


def _encode_column(name: str, value: Column) -> Any:
    if type(value) is not list:
        if value.dtype != object:
            # Slices of rows are contiguous, as orjson wants them.
            return value if value.flags.c_contiguous else np.ascontiguousarray(value)
        value = value.tolist()
    encode = _to_base64 if name.endswith("_bytes") else _to_text
    return [encode(item) if type(item) is bytes else _encode_strings(encode, item) for item in value]


def _encode_strings(encode: Callable[[bytes], Any], value: Any) -> Any:
    return [_encode_strings(encode, item) for item in value] if type(value) is list else encode(value)


def _to_base64(value: bytes) -> dict[str, str]:
    return {"b64": pybase64.b64encode_as_string(value)}


def _to_text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")
