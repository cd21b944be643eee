"""Request bodies of the search service, as JSON, forms or query strings: parsed and checked.

Every error names the place of the mistake, such as `queries[3].text`, the rule and the received value.
"""

from __future__ import annotations

import binascii
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import orjson
import pybase64
from python_multipart.multipart import parse_options_header

from serving.errors import ServingError, invalid_argument
from serving.search.form_parts import read_parts
from serving.search.settings import SearchSettings

FIND = ("images", "texts", "both")
RERANK = ("asymmetric", "none", "features")
SIDES = ("image", "text")
KINDS = ("text", "image", "image_url", "id", "code")
OPTIONS = ("find", "top", "radius", "where", "rerank")
DEFAULT_TOP = 10
_ITEM_FIELDS = ("id", "text", "image", "picture", "metadata")
_MAX_TEXT = 10_000
_MAX_SHOWN = 60
_MAX_PARTS = 200
_INTEGERS = ("top", "radius")
_INT64 = 2**63


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes:
        place: where it stands in the request, for error messages: "queries[3]", or "" for a single query.
        kind: one of `KINDS`.
        value: the text, the picture's bytes, the address, the id, or the code in hexadecimal.
        side: for an id, which code of the item is searched with: "image", "text", or None for any that it has.
        given_as: the field that the request had, if it is not `kind`.
    """

    place: str
    kind: str
    value: Any
    side: str | None = None
    given_as: str | None = None

    def field(self, name: str | None = None) -> str:
        """The name of a field for error messages: "queries[3].text"."""
        own = name or self.given_as or self.kind
        return f"{self.place}.{own}" if self.place else own

    def echo(self) -> dict[str, Any]:
        """The query as the answer repeats it, without the bytes of a picture."""
        if self.kind == "image":
            return {"image": {"bytes": len(self.value)}}
        return {self.kind: self.value} if self.side is None else {self.kind: self.value, "side": self.side}


@dataclass(frozen=True)
class SearchRequest:
    """A search, checked: the queries, and the options of all of them."""

    queries: tuple[Query, ...]
    find: str = "both"
    top: int = DEFAULT_TOP
    radius: int | None = None
    where: str | None = None
    rerank: str = "asymmetric"


@dataclass(frozen=True)
class NewItem:
    """An item to add: `text` and `image` are hashed, `text` is also the caption; `picture` is the path of the file."""

    place: str
    id: str
    text: str | None = None
    image: bytes | None = None
    picture: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def read_search(body: bytes, content_type: str | None, settings: SearchSettings) -> SearchRequest:
    """The search in the body of a POST request: JSON, or multipart/form-data.

    Raises:
        ServingError: INVALID_ARGUMENT.
    """
    kind, parameters = parse_options_header(content_type or "")
    is_form = kind == b"multipart/form-data"
    return _search(_read_form(body, parameters.get(b"boundary")) if is_form else _read_object(body), settings)


def read_search_parameters(query_string: str, settings: SearchSettings) -> SearchRequest:
    """The search in the query string of a GET request.

    Raises:
        ServingError: INVALID_ARGUMENT.
    """
    return _search(_from_strings(_pairs(query_string)), settings)


def read_count(query_string: str, name: str, default: int, maximum: int) -> int:
    """A positive integer in a query string.

    Raises:
        ServingError: INVALID_ARGUMENT.
    """
    given = dict(_pairs(query_string))
    _check_names(given, (name,), "a parameter of this request")
    return _integer({name: _number(given[name])} if name in given else {}, name, default, 1, maximum)


def read_items(body: bytes, settings: SearchSettings) -> list[NewItem]:
    """The items in the body of a POST request.

    Raises:
        ServingError: INVALID_ARGUMENT.
    """
    document = _read_object(body)
    _check_names(document, ("items",), "a field of this request")
    items = document.get("items")
    if not isinstance(items, list) or not 1 <= len(items) <= settings.max_items:
        raise _wrong("items", f"must be a list of 1 to {settings.max_items} items", items)
    return [_item(item, f"items[{position}]") for position, item in enumerate(items)]


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid_argument(f"The body must be JSON. Received: {len(body)} bytes with an error: {error}.") from None
    if not isinstance(document, dict):
        raise invalid_argument(f"The body must be a JSON object. Received: {_show(document)}.")
    return document


def _read_form(body: bytes, boundary: bytes | None) -> dict[str, Any]:
    """The document of a form: its pictures and texts are queries, in the order of the parts."""
    if not boundary:
        raise invalid_argument("Content-Type must name the boundary of the form. Received: none.")
    parts = read_parts(body, boundary, _MAX_PARTS)
    queries: list[dict[str, Any]] = []
    others: list[tuple[str, str]] = []
    for position, (name, value) in enumerate(parts):
        if name == "image":
            queries.append({"image": value})
            continue
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            raise _wrong(f"part {position} ({name})", "must be UTF-8", value[:_MAX_SHOWN]) from None
        if name in KINDS:
            queries.append({name: text})
        else:
            others.append((name, text))
    document = _from_strings(others)
    side = document.pop("side", None)
    for query in queries:
        if side is not None and "id" in query:
            query["side"] = side
    return {**document, "queries": queries}


def _pairs(query_string: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query_string, keep_blank_values=True, max_num_fields=_MAX_PARTS, errors="strict")
    except ValueError:
        message = f"The query string must be UTF-8 with at most {_MAX_PARTS} parameters."
        raise invalid_argument(f"{message} Received: {_show(query_string)}.") from None


def _from_strings(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A document of fields that came as strings; an empty string stands for a missing value."""
    document: dict[str, Any] = {}
    for name, text in pairs:
        if name in document:
            raise invalid_argument(f"`{_show(name, 40)}` must be given once. Received: two values.")
        if name == "image":
            raise invalid_argument("`image` must be sent in the body of a POST request. Received: a string.")
        if text or name in KINDS:
            document[name] = _number(text) if name in _INTEGERS else text
    return document


def _number(text: str) -> Any:
    """The integer that a string contains, or else the string, which then fails the check of its field."""
    return int(text) if len(text) <= 20 and text.isascii() and text.removeprefix("-").isdecimal() else text


def _search(document: Mapping[str, Any], settings: SearchSettings) -> SearchRequest:
    if "queries" in document:
        _check_names(document, ("queries", *OPTIONS), "a field of a search with `queries`")
        given = document["queries"]
        if not isinstance(given, list) or not 1 <= len(given) <= settings.max_queries:
            raise _wrong("queries", f"must be a list of 1 to {settings.max_queries} queries", given)
        queries = tuple(_query(query, f"queries[{position}]", settings) for position, query in enumerate(given))
    else:
        _check_names(document, ("queries", *KINDS, "side", *OPTIONS), "a field of a search")
        single = {name: value for name, value in document.items() if name not in OPTIONS}
        queries = (_query(single, "", settings),)
    where = document.get("where")
    if where is not None and (not isinstance(where, str) or not where.strip() or len(where) > _MAX_TEXT):
        raise _wrong("where", f"must be a filter of 1 to {_MAX_TEXT} characters, or null", where)
    radius = None if document.get("radius") is None else _integer(document, "radius", 0, 0, _INT64 - 1)
    return SearchRequest(
        queries,
        _choice(document, "find", FIND, "both"),
        _integer(document, "top", DEFAULT_TOP, 1, settings.max_top),
        radius,
        where,
        _choice(document, "rerank", RERANK, "asymmetric"),
    )


def _query(query: Any, place: str, settings: SearchSettings) -> Query:
    if not isinstance(query, dict):
        raise _wrong(place, "must be an object", query)
    _check_names(query, (*KINDS, "side"), f"a field of a query (`{place}`)" if place else "a field of a query")
    kinds = [kind for kind in KINDS if kind in query]
    if len(kinds) != 1:
        rule = f"must have one of {', '.join(KINDS)}"
        if place:
            raise _wrong(place, rule, " and ".join(kinds) or "none of them", is_text=True)
        raise invalid_argument(f"A search must have `queries`, or one of {', '.join(KINDS)}. Received: "
                               f"{' and '.join(kinds) or 'none of them'}.")  # fmt: skip
    kind = kinds[0]
    value = query[kind]
    name = f"{place}.{kind}" if place else kind
    side = query.get("side")
    if side is not None and kind != "id":
        raise _wrong(f"{place}.side" if place else "side", "must only be given with `id`", side)
    if side is not None and side not in SIDES:
        raise _wrong(f"{place}.side" if place else "side", f"must be one of {', '.join(SIDES)}", side)
    if kind == "image":
        return Query(place, kind, _image_bytes(value, name))
    if kind == "id":
        return Query(place, kind, _id(value, name), side)
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_TEXT:
        raise _wrong(name, f"must be a string of 1 to {_MAX_TEXT} characters", value)
    if kind == "code":
        return Query(place, kind, _hex(value, name))
    if kind == "image_url" and not settings.image_url_hosts:
        raise ServingError("PERMISSION_DENIED", f"`{name}` is turned off on this service. Send the picture as `image`.")
    return Query(place, kind, value.strip())


def _item(item: Any, place: str) -> NewItem:
    if not isinstance(item, dict):
        raise _wrong(place, "must be an object", item)
    _check_names(item, _ITEM_FIELDS, f"a field of an item (`{place}`)")
    texts: dict[str, str | None] = {}
    for name in ("text", "picture"):
        text = item.get(name)
        if text is not None and (not isinstance(text, str) or not 1 <= len(text) <= _MAX_TEXT):
            raise _wrong(f"{place}.{name}", f"must be a string of 1 to {_MAX_TEXT} characters, or null", text)
        texts[name] = text
    image = None if item.get("image") is None else _image_bytes(item["image"], f"{place}.image")
    if texts["text"] is None and image is None:
        raise invalid_argument(f"`{place}` must have `text` or `image`. Received: neither.")
    metadata = item.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise _wrong(f"{place}.metadata", "must be an object", metadata)
    return NewItem(place, _id(item.get("id"), f"{place}.id"), texts["text"], image, texts["picture"], metadata)


def _image_bytes(value: Any, name: str) -> bytes:
    if isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str):
        try:
            value = pybase64.b64decode(value["b64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise _wrong(f"{name}.b64", "must be base64", f"an error: {error}", is_text=True) from None
    if not isinstance(value, bytes):
        raise _wrong(name, 'must be an object {"b64": "..."} with the picture\'s bytes in base64', value)
    if not value:
        raise _wrong(name, "must be a picture", "no bytes", is_text=True)
    return value


def _id(value: Any, name: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value or "\0" in value or len(value.encode()) > 1000:
        raise _wrong(name, "must be an integer, or a string of 1 to 1000 bytes without NUL characters", value)
    return value


def _hex(value: str, name: str) -> str:
    try:
        code = bytes.fromhex(value)
    except ValueError:
        raise _wrong(name, "must be a code in hexadecimal", value) from None
    return code.hex()


def _choice(document: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str) -> str:
    value = document.get(name, default)
    if value not in choices:
        raise _wrong(name, f"must be one of {', '.join(choices)}", value)
    return value


def _integer(document: Mapping[str, Any], name: str, default: int, minimum: int, maximum: int) -> int:
    value = document.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise _wrong(name, f"must be an integer from {minimum} to {maximum}", value)
    return value


def _check_names(given: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Fields: {', '.join(known)}."
            raise invalid_argument(f"`{_show(name, 40, is_text=True)}` is not {what}. {hint}")


def _wrong(name: str, rule: str, value: Any, is_text: bool = False) -> ServingError:
    return invalid_argument(f"`{name}` {rule}. Received: {_show(value, is_text=is_text)}.")


def _show(value: Any, length: int = _MAX_SHOWN, is_text: bool = False) -> str:
    """A received value for an error message, shortened."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, str) and not is_text:
        text = f"a string of {len(value)} characters" if len(value) > length else repr(value)
    else:
        text = "null" if value is None else str(value)
    return text if len(text) <= length else f"{text[:length]}…"
