"""Overrides of a nested dataclass configuration, with errors for unknown keys and wrong types."""

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import numpy as np

from cmimh_tf.checksums import verify

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")


def override(config: Config, values: Mapping[str, Any]) -> Config:
    """A copy of `config` with some values replaced.

    Args:
        config: the configuration to start from.
        values: dotted keys to values, such as {"loss.balance_weight": 0.1}.

    Raises:
        ValueError: for an unknown key, with the nearest names, or a value out of range.
        TypeError: for a value of the wrong type.
    """
    types = _field_types(config)
    changes: dict[str, Any] = {}
    for key, value in values.items():
        if key not in types:
            nearest = difflib.get_close_matches(key, types, n=3, cutoff=0.4)
            raise ValueError(
                f"`{key}` is not a configuration key. Nearest: {', '.join(nearest) or ', '.join(sorted(types))}."
            )
        section, _, name = key.rpartition(".")
        changes.setdefault(section, {})[name] = _converted(key, value, types[key])
    top_level = changes.pop("", {})
    sections = {name: dataclasses.replace(getattr(config, name), **part) for name, part in changes.items()}
    return dataclasses.replace(config, **top_level, **sections)


def parse_overrides(arguments: Iterable[str]) -> dict[str, Any]:
    """Turns `--set` arguments into dotted keys and values.

    Args:
        arguments: each "key=value" with the value in JSON (a bare word is a string), or "@file.json", a file with
            such keys, nested or dotted.

    Raises:
        ValueError: for an argument or a file that cannot be read.
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        if argument.startswith("@"):
            values.update(flatten(_read_json(Path(argument[1:]))))
            continue
        key, separator, text = argument.partition("=")
        if not separator:
            raise ValueError(f"`--set` takes key=value or @file.json. Received: {argument!r}.")
        try:
            values[key.strip()] = json.loads(text)
        except json.JSONDecodeError:
            values[key.strip()] = text.strip()
    return values


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries to one with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        verify(path)
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"`--set @FILE` must name a readable JSON file. Received: {path}: {error}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"`--set @FILE` must hold a JSON object. Received: {path} with a {type(values).__name__}.")
    return values


def _field_types(config: Any) -> dict[str, Any]:
    types: dict[str, Any] = {}
    for top in dataclasses.fields(config):
        if dataclasses.is_dataclass(top.type):
            types.update({f"{top.name}.{part.name}": part.type for part in dataclasses.fields(top.type)})
        else:
            types[top.name] = top.type
    return types


def _converted(key: str, value: Any, expected: Any) -> Any:
    """`value` as the field's type: an int is a float too, a list of ints is a tuple."""
    options = get_args(expected) if type(None) in get_args(expected) else (expected,)
    if value is None and type(None) in options:
        return None
    if isinstance(value, np.integer):
        value = int(value)
    if float in options and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    is_list = isinstance(value, list | tuple) and len(value) > 0
    if tuple[int, ...] in options and is_list and all(type(item) is int for item in value):
        return tuple(value)
    if any(isinstance(option, type) and type(value) is option for option in options):
        return value
    name = getattr(expected, "__name__", str(expected)) if expected in (int, float, str, bool) else str(expected)
    raise TypeError(f"`{key}` must be of type {name}. Received: {key}={value!r}.")
