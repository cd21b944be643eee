"""The HTTP interface of the search service: its routes, and the files of the page."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from serving.errors import ServingError
from serving.search.bodies import read_count, read_items, read_search, read_search_parameters
from serving.search.openapi import make_document
from serving.search.service import SearchService
from serving.telemetry import METRICS_CONTENT_TYPE
from serving.web_app import Request, Response, Route, WebApp

PAGE = Path(__file__).resolve().parents[1] / "search_page"
_ITEM = "/v1/items/(?P<id>(?s:.+))"
_DEFAULT_SIZE = 256
_MAX_SIZE = 1024
_MAX_SAMPLE = 100
_SAFE = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
]
_POLICY = "; ".join([
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob:", "connect-src 'self'",
    "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
])  # fmt: skip
_PAGE_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
}


def make_search_app(service: SearchService) -> WebApp:
    """The application over a service."""

    async def search(request: Request) -> Response:
        body = await request.body()
        found = read_search(body, request.headers.get("content-type"), service.settings)
        return _json(await service.search(found))

    async def search_by_address(request: Request) -> Response:
        return _json(await service.search(read_search_parameters(request.query, service.settings)))

    async def get_item(request: Request) -> Response:
        return _json(await service.item(request.params["id"]))

    async def list_items(request: Request) -> Response:
        return _json(await service.sample(read_count(request.query, "count", 24, _MAX_SAMPLE)))

    async def picture(request: Request) -> Response:
        size = read_count(request.query, "size", _DEFAULT_SIZE, _MAX_SIZE)
        thumbnail = await service.thumbnail(request.params["id"], size)
        headers = [*_SAFE, ("etag", thumbnail.etag), ("cache-control", "private, max-age=300")]
        if _matches(request, thumbnail.etag):
            return Response(b"", 304, thumbnail.content_type, headers)
        return Response(thumbnail.data, 200, thumbnail.content_type, headers)

    async def indexes(request: Request) -> Response:
        return _json(await service.indexes())

    async def add_items(request: Request) -> Response:
        _check_writable()
        return _json(await service.add(read_items(await request.body(), service.settings)))

    async def remove_item(request: Request) -> Response:
        _check_writable()
        return _json(await service.remove(request.params["id"]))

    async def ready(request: Request) -> Response:
        if app.stopping or not service.versions.is_ready():
            raise ServingError("UNAVAILABLE", "The service is not ready.")
        return Response(b'{"ready": true}')

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.page(), content_type=METRICS_CONTENT_TYPE)

    async def openapi(request: Request) -> Response:
        return _json(make_document(service.settings))

    async def no_icon(request: Request) -> Response:
        return Response(b"", 204, "image/x-icon", [("cache-control", "max-age=86400")])

    def _check_writable() -> None:
        if service.settings.token is None:
            raise ServingError(
                "PERMISSION_DENIED",
                "The index cannot be changed through this service, because it was started without a token. "
                "Start it with --token-file.",
            )

    def observe(request: Request, route: Route | None, error: ServingError | None, seconds: float) -> None:
        name = "none" if route is None else names.get(route, "page")
        service.metrics.observe_request((name,), "OK" if error is None else error.code, seconds)

    routes = {
        "search": Route("POST", "/v1/search", search, is_public=True),
        "search_by_address": Route("GET", "/v1/search", search_by_address, is_public=True),
        "picture": Route("GET", f"{_ITEM}/picture", picture, is_public=True),
        "item": Route("GET", _ITEM, get_item, is_public=True),
        "items": Route("GET", "/v1/items", list_items, is_public=True),
        "add": Route("POST", "/v1/items", add_items),
        "remove": Route("DELETE", _ITEM, remove_item),
        "indexes": Route("GET", "/v1/indexes", indexes, is_public=True),
        "ready": Route("GET", "/readyz", ready, is_public=True),
        "metrics": Route("GET", "/metrics", metrics, is_public=True),
        "openapi": Route("GET", "/openapi.json", openapi, is_public=True),
    }
    names = {route: name for name, route in routes.items()}
    pages = [Route("GET", path, _page_file(*file), is_public=True) for path, file in _PAGE_FILES.items()]
    # Browsers ask for it, and report a missing one as an error.
    pages.append(Route("GET", "/favicon.ico", no_icon, is_public=True))
    app = WebApp([*routes.values(), *pages], service.settings, observe, error_body=_error_body)
    return app


def _json(document: Any) -> Response:
    return Response(orjson.dumps(document), headers=[*_SAFE, ("cache-control", "no-store")])


def _error_body(request: Request, error: ServingError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": error.message}, "request_id": request.id}


def _matches(request: Request, etag: str) -> bool:
    given = request.headers.get("if-none-match")
    return given is not None and (
        given.strip() == "*" or etag in [one.strip().removeprefix("W/") for one in given.split(",")]
    )


def _page_file(name: str, content_type: str) -> Callable[[Request], Awaitable[Response]]:
    """A handler for one file of the page. The file is read once, when the application is made."""
    data = (PAGE / name).read_bytes()
    etag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
    headers = [*_SAFE, ("etag", etag), ("cache-control", "no-cache"), ("content-security-policy", _POLICY)]

    async def page_file(request: Request) -> Response:
        if _matches(request, etag):
            return Response(b"", 304, content_type, headers)
        return Response(data, 200, content_type, headers)

    return page_file
