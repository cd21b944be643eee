"""JSON to tensors and back, with the rules and messages of TF Serving's REST interface."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import pybase64

from serving.server.batcher import Column, Outputs
from serving.server.errors import ServingError, invalid_argument
from serving.server.servable import InputSpec, Runner

_JSON_TYPES = {
    type(None): "Null", bool: "Boolean", dict: "Object", list: "Array", str: "String", int: "Number", float: "Number",
}  # fmt: skip
_INTEGER_LIMIT = {np.dtype(np.float32): 2**24 - 1, np.dtype(np.float64): 2**53 - 1}
_MAX_SHOWN = 120


def parse_body(body: bytes) -> dict[str, Any]:
    """The request's JSON object.

    Raises:
        ServingError: INVALID_ARGUMENT if it is no JSON, or no object.
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
    """The request's `signature_name`, or the empty string."""
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
        runner: the signature that is asked for.
        max_rows: more are refused.

    Returns:
        Inputs by alias, the number of rows, and whether the request came in rows.
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
    return inputs, check_inputs(inputs, runner, max_rows), row_format


def check_inputs(inputs: Mapping[str, Column], runner: Runner, max_rows: int) -> int:
    """The number of rows that all inputs have; shapes are compared with the signature's."""
    sizes = set()
    for name, value in inputs.items():
        shape = (len(value),) if isinstance(value, list) else value.shape
        runner.inputs[name].check(shape)
        if not shape:
            raise invalid_argument(f"`{name}` must have a batch dimension. Received: a scalar.")
        sizes.add(shape[0])
    if len(sizes) != 1:
        raise invalid_argument(f"All inputs must have the same number of rows. Received: {sorted(sizes)}.")
    rows = sizes.pop()
    if not 1 <= rows <= max_rows:
        raise invalid_argument(f"A request must have 1 to {max_rows} rows. Received: {rows}.")
    return rows


def encode_response(outputs: Outputs, row_format: bool) -> bytes:
    """The JSON of the outputs; a single output comes without its name."""
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


def _encode_column(name: str, value: np.ndarray) -> Any:
    if value.dtype == object:
        return _encode_strings(_to_base64 if name.endswith("_bytes") else _to_text, value.tolist())
    # Slices of rows are contiguous, as orjson wants them.
    return value if value.flags.c_contiguous else np.ascontiguousarray(value)


def _encode_strings(encode: Callable[[bytes], Any], value: Any) -> Any:
    return [_encode_strings(encode, item) for item in value] if type(value) is list else encode(value)


def _to_base64(value: bytes) -> dict[str, str]:
    return {"b64": pybase64.b64encode_as_string(value)}


def _to_text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


def _is_base64(value: Any) -> bool:
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def _decode_instances(instances: Any, runner: Runner, max_rows: int) -> dict[str, Column]:
    if type(instances) is not list:
        raise invalid_argument("Excepting 'instances' to be an list/array")
    if not instances:
        raise invalid_argument("No values in 'instances' array")
    if len(instances) > max_rows:
        raise invalid_argument(f"A request must have 1 to {max_rows} rows. Received: {len(instances)}.")
    first_is_object = type(instances[0]) is dict and not _is_base64(instances[0])
    if not first_is_object:
        if len(runner.inputs) > 1:
            raise invalid_argument(
                "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
                "tensorinfo_map"
            )
        (spec,) = runner.inputs.values()
        for position, item in enumerate(instances):
            if type(item) is dict and not _is_base64(item):
                raise invalid_argument(f"Expecting value/list but got object at item {position} of input list")
        return {spec.name: _in_instances(instances, spec)}
    names = set(runner.inputs)
    for position, item in enumerate(instances):
        if type(item) is not dict or _is_base64(item):
            raise invalid_argument(f"Expecting object but got list at item {position} of input list")
        if item.keys() != names:
            raise invalid_argument(
                f"Failed to process element: {position} of 'instances' list. JSON object: {show(item)} keys must be "
                f"equal to: {','.join(sorted(names))}"
            )
    return {name: _in_instances([item[name] for item in instances], spec) for name, spec in runner.inputs.items()}


def _in_instances(values: list[Any], spec: InputSpec) -> Column:
    try:
        return decode_tensor(values, spec)
    except ServingError as error:
        raise invalid_argument(f"Failed to process 'instances' list. Error: {error.message}") from None


def _decode_columns(inputs: Any, runner: Runner) -> dict[str, Column]:
    if type(inputs) is not dict or _is_base64(inputs):
        if len(runner.inputs) > 1:
            raise invalid_argument(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        (spec,) = runner.inputs.values()
        return {spec.name: decode_tensor(inputs, spec)}
    for name in runner.inputs:
        if name not in inputs:
            raise invalid_argument(f"Missing named input: {name} in 'inputs' object.")
    return {name: decode_tensor(inputs[name], spec) for name, spec in runner.inputs.items()}


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
        # The rank is known, so lists that are nested deeper need not be unfolded to be refused.
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
    if not _is_base64(value):
        if type(value) is dict:
            raise invalid_argument(f"JSON Value: {show(value)} not formatted correctly for base64 data")
        raise _type_error(value, "string")
    return decode_base64(value["b64"])


def decode_base64(text: str) -> bytes:
    """Standard base64; as in TF Serving the padding may be left out.

    Raises:
        ServingError: INVALID_ARGUMENT for anything else.
    """
    try:
        # Ten times as fast as the standard library, and most of the bytes of a request come through here.
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        pass
    try:
        return pybase64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise invalid_argument("Unable to base64 decode") from None


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
    """JSON for a message, cut off where it gets long."""
    try:
        text = orjson.dumps(value).decode("utf-8")
    except orjson.JSONEncodeError:
        # It can read values that are nested deeper than it can write.
        text = f"a deeply nested {_JSON_TYPES[type(value)]}"
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
