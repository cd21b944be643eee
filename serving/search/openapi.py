"""The OpenAPI document of the search service."""

from __future__ import annotations

from typing import Any

from serving.search.bodies import DEFAULT_TOP, FIND, RERANK, SIDES
from serving.search.settings import SearchSettings

_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_NUMBER = {"type": "number"}
_HEX = {"type": "string", "pattern": "^([0-9a-f]{2})+$", "description": "A code in hexadecimal, the first byte first."}
_ID = {"type": "string", "minLength": 1}


def make_document(settings: SearchSettings) -> dict[str, Any]:
    """The document, with the limits of a service."""
    options = {
        "find": {"type": "string", "enum": list(FIND), "default": "both", "description": "Which sides to search."},
        "top": {"type": "integer", "minimum": 1, "maximum": settings.max_top, "default": DEFAULT_TOP},
        "radius": {"type": ["integer", "null"], "minimum": 0, "description": "Maximum Hamming distance."},
        "where": {"type": ["string", "null"], "description": "A filter, such as label = 'dog' and year >= 2020."},
        "rerank": {"type": "string", "enum": list(RERANK), "default": "asymmetric"},
    }
    query = {
        "text": {**_STRING, "minLength": 1},
        "image": _object({"b64": {"type": "string", "contentEncoding": "base64"}}, ["b64"]),
        "image_url": {**_STRING, "description": "Rejected unless the service allows the host."},
        "id": _ID,
        "code": _HEX,
    }
    side = {"side": {"type": "string", "enum": list(SIDES)}}
    queries = [_object({name: query[name], **(side if name == "id" else {})}, [name]) for name in query]
    several = _object({"queries": _list(_ref("Query"), 1, settings.max_queries)}, ["queries"])
    schemas = {
        "Query": {"oneOf": queries},
        "Search": {"oneOf": [several, *queries], **_object(options)},
        "Form": _object({
            **{name: _list({"type": "string"}) for name in ("text", "id", "code")},
            "image": _list({"type": "string", "format": "binary"}), **options,
        }),
        "Index": _object({
            "name": _STRING, "version": {"type": ["integer", "null"]}, "items": _INTEGER, "bits": _INTEGER,
            "model": {"type": ["string", "null"], "description": "Fingerprint of the model that made the codes."},
        }),
        "Column": _object({
            "name": _STRING, "type": {"type": "string", "enum": ["string", "number", "label"]},
            "values": _list({}), "complete": {"type": "boolean"}, "range": _list(_NUMBER, 2, 2),
        }),
        "Details": _object({"columns": _list(_ref("Column")), "rerankings": _list(_STRING)}),
        "Item": _object({
            "id": _ID, "caption": {"type": ["string", "null"]}, "picture": {"type": ["string", "null"]},
            "metadata": {"type": "object"}, "codes": {"type": "object", "additionalProperties": _HEX},
        }),
        "Hit": _object({
            "id": _ID, "side": {"type": "string", "enum": list(SIDES)}, "rank": _INTEGER, "distance": _INTEGER,
            "score": _NUMBER, "code": _HEX, "caption": {"type": ["string", "null"]},
            "picture": {"type": ["string", "null"]}, "metadata": {"type": "object"},
        }),
        "Found": _object({
            "index": _ref("Index"), "seconds": _NUMBER,
            "results": _list(_object({"query": {"type": "object"}, "hits": _list(_ref("Hit"))})),
        }),
        "NewItems": _object({
            "items": _list(_object({
                "id": _ID, "text": {"type": ["string", "null"]}, "image": query["image"],
                "picture": {"type": ["string", "null"], "description": "Path below the folder of pictures."},
                "metadata": {"type": "object"},
            }, ["id"]), 1, settings.max_items),
        }, ["items"]),
        "Added": _object({"added": _INTEGER, "replaced": _INTEGER, "index": _ref("Index")}),
        "Removed": _object({"removed": _INTEGER, "index": _ref("Index")}),
        "Indexes": _object({
            "indexes": _list({"allOf": [_ref("Index"), _ref("Details")]}),
            "limits": {"type": "object"}, "serves_pictures": {"type": "boolean"},
        }),
        "Error": _object({"error": _object({"code": _STRING, "message": _STRING}), "request_id": _STRING}),
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cmimh search", "version": "1", "description": "Finds pictures by text and texts by pictures.",
        },
        "paths": _paths({**{name: query[name] for name in ("text", "id", "code")}, **options}),
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }  # fmt: skip


def _paths(search_parameters: dict[str, Any]) -> dict[str, Any]:
    item = [{"name": "id", "in": "path", "required": True, "schema": _ID}]
    token: dict[str, Any] = {"security": [{"token": []}]}
    return {
        "/v1/search": {
            "post": {
                **_operation("Searches.", _ref("Found")),
                **_body({"application/json": "Search", "multipart/form-data": "Form"}),
            },
            "get": {
                **_operation("Searches with one text, id or code.", _ref("Found")),
                "parameters": [_parameter(name, schema) for name, schema in search_parameters.items()],
            },
        },
        "/v1/items": {
            "get": {
                **_operation("Items spread over the index.", _object({"items": _list(_ref("Item"))})),
                "parameters": [_parameter("count", {"type": "integer", "minimum": 1, "maximum": 100, "default": 24})],
            },
            "post": {
                **_operation("Adds items, all or none.", _ref("Added")),
                **_body({"application/json": "NewItems"}),
                **token,
            },
        },
        "/v1/items/{id}": {
            "get": {**_operation("One item.", _ref("Item")), "parameters": item},
            "delete": {**_operation("Removes an item.", _ref("Removed")), **token, "parameters": item},
        },
        "/v1/items/{id}/picture": {
            "get": {
                **_operation("A thumbnail of the item's picture.", {**_STRING, "format": "binary"}, "image/webp"),
                "parameters": [
                    *item,
                    _parameter("size", {"type": "integer", "minimum": 1, "maximum": 1024, "default": 256}),
                ],
            }
        },
        "/v1/indexes": {"get": _operation("The open index, its columns, and the limits.", _ref("Indexes"))},
        "/readyz": {"get": _operation("Whether the service is ready.", _object({"ready": {"type": "boolean"}}))},
        "/metrics": {"get": _operation("Metrics for Prometheus.", _STRING, "text/plain")},
    }


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema}


def _body(schemas: dict[str, str]) -> dict[str, Any]:
    content = {content_type: {"schema": _ref(name)} for content_type, name in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}


def _operation(summary: str, schema: dict[str, Any], content_type: str = "application/json") -> dict[str, Any]:
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "OK", "content": {content_type: {"schema": schema}}},
            "default": {"description": "An error", "content": {"application/json": {"schema": _ref("Error")}}},
        },
    }


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _list(items: dict[str, Any], minimum: int = 0, maximum: int | None = None) -> dict[str, Any]:
    limits = {} if maximum is None else {"minItems": minimum, "maxItems": maximum}
    return {"type": "array", "items": items, **limits}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
