"""JSON of the REST interface: request bodies to tensors and tensors to answers, by TF Serving's rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import pybase64

from serving.errors import ServingError, invalid_argument
from serving.server.batcher import Outputs
from serving.server.servable import Column, InputSpec, Runner

_JSON_TYPES = {
    type(None): "Null", bool: "Boolean", dict: "Object", list: "Array", str: "String", int: "Number", float: "Number",
}  # fmt: skip
_INTEGER_LIMIT = {np.dtype(np.float32): 2**24 - 1, np.dtype(np.float64): 2**53 - 1}
_MAX_SHOWN = 120


def parse_body(body: bytes) -> dict[str, Any]:
    """The JSON object of a request.

    Raises:
        ServingError: INVALID_ARGUMENT if the body is not a JSON object.
    """
    if not body:
        raise invalid_argument("JSON Parse error: The document is empty")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid_argument(f"JSON Parse error: {error.msg} at offset: {error.pos}") from None
    if type(document) is not dict:
        raise invalid_argument(f"JSON Value: {show(document)} Is not object")
    return document


def signature_name_of(document: Mapping[str, Any]) -> str:
    """The `signature_name` of a request, or the empty string."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise invalid_argument(
            f"JSON Value: {show(document)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return name


def decode_request(document: Mapping[str, Any], runner: Runner, max_rows: int) -> tuple[dict[str, Column], int, bool]:
    """The tensors of a Predict request.

    Args:
        document: with either `instances` (rows) or `inputs` (columns).
        runner: the requested signature.
        max_rows: maximum number of rows.

    Returns:
        Columns by alias, the number of rows, and whether the request had `instances`.

    Raises:
        ServingError: INVALID_ARGUMENT, with the row and the input if they are known.
    """
    if "instances" in document:
        if "inputs" in document:
            raise invalid_argument(
                "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
            )
        inputs = _decode_instances(document["instances"], runner, max_rows)
        row_format = True
    elif "inputs" in document:
        inputs = _decode_columns(document["inputs"], runner)
        row_format = False
    else:
        raise invalid_argument("Missing 'inputs' or 'instances' key")
    return inputs, runner.count_rows(inputs, max_rows), row_format


def _decode_instances(instances: Any, runner: Runner, max_rows: int) -> dict[str, Column]:
    if type(instances) is not list:
        raise invalid_argument("Excepting 'instances' to be an list/array")
    if not instances:
        raise invalid_argument("No values in 'instances' array")
    if len(instances) > max_rows:
        raise invalid_argument(f"A request must have 1 to {max_rows} rows. Received: {len(instances)}.")
    if type(instances[0]) is not dict or is_base64(instances[0]):
        if len(runner.inputs) > 1:
            raise invalid_argument(
                "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
                "tensorinfo_map"
            )
        (spec,) = runner.inputs.values()
        rows = decode_base64_rows(instances) if spec.is_string_a_row else None
        if rows is not None:
            return {spec.name: rows}
        for position, item in enumerate(instances):
            if type(item) is dict and not is_base64(item):
                raise invalid_argument(f"Expecting value/list but got object at item {position} of input list")
        return {spec.name: _decode_rows(instances, spec, "instances")}
    names = set(runner.inputs)
    for position, item in enumerate(instances):
        if type(item) is not dict or is_base64(item):
            raise invalid_argument(f"Expecting object but got list at item {position} of input list")
        if item.keys() != names:
            raise invalid_argument(
                f"Failed to process element: {position} of 'instances' list. JSON object: {show(item)} keys must be "
                f"equal to: {','.join(sorted(names))}"
            )
    columns = {name: [item[name] for item in instances] for name in runner.inputs}
    return {name: _decode_rows(columns[name], spec, "instances") for name, spec in runner.inputs.items()}


def _decode_columns(inputs: Any, runner: Runner) -> dict[str, Column]:
    if type(inputs) is not dict or is_base64(inputs):
        if len(runner.inputs) > 1:
            raise invalid_argument(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        (spec,) = runner.inputs.values()
        return {spec.name: _decode_rows(inputs, spec, "inputs")}
    for name in runner.inputs:
        if name not in inputs:
            raise invalid_argument(f"Missing named input: {name} in 'inputs' object.")
    return {name: _decode_rows(inputs[name], spec, "inputs") for name, spec in runner.inputs.items()}


def _decode_rows(values: Any, spec: InputSpec, key: str) -> Column:
    """A column of the request. An error names the first wrong row, which is found by bisection."""
    try:
        return decode_tensor(values, spec)
    except ServingError as problem:
        error = problem
    place, first, last = f"`{spec.name}`", 0, len(values) if type(values) is list else 0
    while last - first > 1:
        middle = (first + last) // 2
        try:
            # Together with the first row: rows of different sizes are an error, too.
            decode_tensor([values[0], *values[first:middle]], spec)
            first = middle
        except ServingError as problem:
            last, error = middle, problem
    if last:
        place = f"Row {first} of {place}"
    raise invalid_argument(f"Failed to process '{key}'. {place}: {error.message}")


def decode_tensor(value: Any, spec: InputSpec) -> Column:
    """A nested list of JSON values as a dense tensor.

    Raises:
        ServingError: INVALID_ARGUMENT if the lists are ragged, or a value is not of the input's type.
    """
    shape: list[int] = []
    leaves = [value]
    while type(leaves[0]) is list:
        size = len(leaves[0])
        for item in leaves:
            if type(item) is not list:
                raise invalid_argument(
                    f"JSON Value: {show(item)} found at incorrect level: {len(shape)} in the JSON DOM."
                )
            if len(item) != size:
                raise invalid_argument(
                    f"Encountered list at unexpected size: {len(item)} at level: {len(shape)} expected size: {size}"
                )
        shape.append(size)
        leaves = leaves[0] if len(leaves) == 1 else list(itertools.chain.from_iterable(leaves))
        if not leaves:
            break
        # The rank is known, so lists that are nested deeper are rejected without unfolding them.
        if spec.shape is not None and len(shape) > len(spec.shape):
            raise invalid_argument(
                f"Encountered list at unexpected level: {len(shape)} expected < {len(spec.shape) + 1}"
            )
    if spec.dtype == object:
        strings = [_decode_string(leaf) for leaf in leaves]
        if len(shape) == 1:
            return strings
        array = np.empty(len(strings), object)
        array[:] = strings
        return array.reshape(shape)
    return _decode_numbers(leaves, spec).reshape(shape)


def _decode_string(value: Any) -> bytes:
    if type(value) is str:
        return value.encode("utf-8")
    if not is_base64(value):
        if type(value) is dict:
            raise invalid_argument(f"JSON Value: {show(value)} not formatted correctly for base64 data")
        raise _type_error(value, "string")
    return decode_base64(value["b64"])


def decode_base64(text: str) -> bytes:
    """Decodes standard base64; the padding may be missing, as in TF Serving.

    Raises:
        ServingError: INVALID_ARGUMENT if the text is not base64.
    """
    try:
        # Ten times as fast as the standard library; most bytes of a request are base64.
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        pass
    try:
        return pybase64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise invalid_argument("Unable to base64 decode") from None


def decode_base64_rows(values: list[Any]) -> list[bytes] | None:
    """The fast path for rows of {"b64": text}; None if any row is something else or not valid."""
    try:
        rows = [pybase64.b64decode(value["b64"], validate=True) for value in values if len(value) == 1]
    except (TypeError, KeyError, ValueError):
        return None
    return rows if len(rows) == len(values) else None


def _decode_numbers(leaves: list[Any], spec: InputSpec) -> np.ndarray:
    kinds = set(map(type, leaves))
    if spec.dtype == bool:
        _check_types(leaves, kinds, {bool}, spec)
        return np.array(leaves, bool)
    if spec.dtype.kind in "iu":
        _check_types(leaves, kinds, {int}, spec)
        limits = np.iinfo(spec.dtype)
        for leaf in leaves:
            if not limits.min <= leaf <= limits.max:
                raise _type_error(leaf, spec.type_name)
        return np.array(leaves, spec.dtype)
    if spec.dtype not in _INTEGER_LIMIT:
        raise ServingError("UNIMPLEMENTED", f"Conversion of JSON values to type: {spec.type_name}")
    _check_types(leaves, kinds, {int, float}, spec)
    limit = _INTEGER_LIMIT[spec.dtype]
    if int in kinds:
        for leaf in leaves:
            if type(leaf) is int and abs(leaf) > limit:
                raise _lossy(leaf, spec)
    values = np.array(leaves, np.float64)
    largest = np.finfo(spec.dtype).max
    beyond = np.abs(values) > largest
    if beyond.any():
        raise _lossy(leaves[int(np.argmax(beyond))], spec)
    return values.astype(spec.dtype)


def _check_types(leaves: list[Any], kinds: set[type], allowed: set[type], spec: InputSpec) -> None:
    if not kinds <= allowed:
        raise _type_error(next(leaf for leaf in leaves if type(leaf) not in allowed), spec.type_name)


def _type_error(value: Any, type_name: str) -> ServingError:
    kind = {True: "True", False: "False"}[value] if type(value) is bool else _JSON_TYPES[type(value)]
    name = {"float32": "float", "float64": "double"}.get(type_name, type_name)
    return invalid_argument(f"JSON Value: {show(value)} Type: {kind} is not of expected type: {name}")


def _lossy(value: float, spec: InputSpec) -> ServingError:
    target = {"float32": "float", "float64": "double"}[spec.type_name]
    return invalid_argument(f"Cannot convert JSON value: {show(value)} to {target} without loss of precision.")


def show(value: Any) -> str:
    """JSON for a message, shortened."""
    try:
        text = orjson.dumps(value).decode("utf-8")
    except orjson.JSONEncodeError:
        # orjson reads deeper nesting than it writes.
        text = f"a deeply nested {_JSON_TYPES[type(value)]}"
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def is_base64(value: Any) -> bool:
    """Whether `value` is {"b64": text}, the notation for bytes."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def encode_response(outputs: Outputs, row_format: bool) -> bytes:
    """The JSON of the outputs; a single output is written without its name.

    Args:
        outputs: of one request.
        row_format: whether the request had `instances`.
    """
    if row_format:
        batch = outputs.batch
        if batch.json_rows is None:
            batch.json_rows = _encode_rows(batch.columns)
        return b'{"predictions":[%b]}' % b",".join(batch.json_rows[outputs.start : outputs.stop])
    columns = {name: _encode_column(name, value) for name, value in outputs.columns().items()}
    body = columns if len(columns) > 1 else next(iter(columns.values()))
    return orjson.dumps({"outputs": body}, option=orjson.OPT_SERIALIZE_NUMPY)


def _encode_rows(columns: Mapping[str, Column]) -> list[bytes]:
    """The JSON of each row."""
    encoded = [_encode_cells(_encode_column(name, value)) for name, value in columns.items()]
    if len(encoded) == 1:
        return encoded[0]
    row = b"{%b}" % b",".join([b"%b:%%b" % orjson.dumps(name).replace(b"%", b"%%") for name in columns])
    return [row % cells for cells in zip(*encoded, strict=True)]


def _encode_cells(column: Any) -> list[bytes]:
    """The JSON of each cell. A matrix is encoded as a whole and split, which is several times as fast."""
    if type(column) is not list and column.ndim == 2:
        text = orjson.dumps(column, option=orjson.OPT_SERIALIZE_NUMPY)
        return [b"[%b]" % cell for cell in text[2:-2].split(b"],[")]
    return [orjson.dumps(cell, option=orjson.OPT_SERIALIZE_NUMPY) for cell in column]


def _encode_column(name: str, value: Column) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype != object:
            # orjson needs contiguous arrays; slices of rows are.
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
