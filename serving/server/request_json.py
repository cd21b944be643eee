"""The body of a REST Predict request: which tensors it holds, in rows or in columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from serving.server.errors import ServingError, invalid_argument
from serving.server.servable import Column, InputSpec, Runner
from serving.server.tensor_json import decode_base64_rows, decode_tensor, is_base64, show


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
        return {spec.name: _in_instances(instances, spec)}
    names = set(runner.inputs)
    for position, item in enumerate(instances):
        if type(item) is not dict or is_base64(item):
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
    if type(inputs) is not dict or is_base64(inputs):
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
