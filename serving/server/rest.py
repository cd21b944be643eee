"""The REST interface: TF Serving's addresses, as a bare ASGI application without layers in between."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson

from serving.server.codec import decode_request, encode_response, parse_body, signature_name_of
from serving.server.errors import ServingError, from_exception, invalid_argument
from serving.server.model_description import metadata_json, status_json
from serving.server.service import Service

logger = logging.getLogger(__name__)

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

METRICS_PATH = "/monitoring/prometheus/metrics"
READY_PATH = "/readyz"
_MODEL = rb"(?i:/v1/models)/([^/:]+)(?:/(?i:versions)/(\d+)|/(?i:labels)/([^/:]+))?"
_PREDICT = re.compile(_MODEL + rb":(?i:(predict|classify|regress))")
_STATUS = re.compile(_MODEL + rb"(/(?i:metadata))?")
_MAX_VERSION = 2**63 - 1
_MAX_LENGTH_DIGITS = 18
_MAX_ADDRESS_LENGTH = 1024
_JSON = (b"content-type", b"application/json")


@dataclass(frozen=True)
class Target:
    """What an address names.

    Attributes:
        method: "predict", "classify", "regress", "metadata" or "status".
        model: its name.
        version, label: at most one of them.
    """

    method: str
    model: str
    version: int | None
    label: str | None


class RestApplication:
    """The ASGI application.

    Args:
        service: what answers.
    """

    def __init__(self, service: Service):
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _accept_lifespan(receive, send)
        if scope["type"] != "http":
            return None
        started = time.perf_counter()
        headers = dict(scope["headers"])
        service = self._service
        request_id = service.request_id(headers.get(b"x-request-id"))
        path, method = scope["raw_path"] if scope.get("raw_path") else scope["path"].encode(), scope["method"]
        model, error, kind = "", None, _JSON
        status, extra = 200, []
        try:
            if method == "GET" and path == READY_PATH.encode():
                body, status = (b'{"ready": true}', 200) if service.is_ready() else (b'{"ready": false}', 503)
            else:
                service.check_token(headers.get(b"authorization"))
                if method == "GET" and path == METRICS_PATH.encode():
                    body, kind = service.metrics.page(), (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
                else:
                    target = find_target(method, path)
                    model = target.model
                    if target.method == "predict":
                        content = await self._read_body(headers, receive)
                        body = await self._predict(target, content)
                    else:
                        body = self._describe(target)
        except ServingError as problem:
            error = problem
        except _Disconnected:
            error = ServingError("CANCELLED", "The client hung up.")
        except asyncio.CancelledError:
            error = ServingError("UNAVAILABLE", "The server is shutting down.")
        except Exception as problem:
            logger.exception("request failed", extra={"request_id": request_id})
            error = from_exception(problem)
        if error is not None:
            status, body, kind = error.http_status, orjson.dumps({"error": error.message}), _JSON
            if error.code == "UNAUTHENTICATED":
                extra = [(b"www-authenticate", b"Bearer")]
            elif error.code == "RESOURCE_EXHAUSTED":
                extra = [(b"retry-after", b"1")]
            if status == 413:
                # What is left of the body is not read.
                extra = [(b"connection", b"close")]
        response_headers = [
            kind, (b"content-length", b"%d" % len(body)), (b"x-request-id", request_id.encode("ascii")), *extra,
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": status, "headers": response_headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
        service.finish(request_id, model, "REST", (method, path), error, time.perf_counter() - started)
        return None

    async def _predict(self, target: Target, content: bytes) -> bytes:
        document = parse_body(content)
        signature_name = signature_name_of(document)
        store = self._service.store
        # Not as a context manager, which would cost as much as the look-up itself.
        servable = store.take(target.model, target.version, target.label)
        try:
            runner = servable.runner(signature_name)
            if runner is None:
                name = signature_name or "serving_default"
                raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
            inputs, rows, row_format = decode_request(document, runner, self._service.settings.max_rows)
            outputs = await self._service.predict(runner, inputs, rows)
        finally:
            store.release(servable)
        return encode_response(outputs, row_format)

    def _describe(self, target: Target) -> bytes:
        store = self._service.store
        if target.method == "status":
            return status_json(store.statuses(target.model, target.version, target.label))
        if target.method == "metadata":
            with store.acquire(target.model, target.version, target.label) as servable:
                return metadata_json(servable)
        raise invalid_argument(f"Method {target.method} is not supported by a hashing model; use predict.")

    async def _read_body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        limit = self._service.settings.max_body_bytes
        length = headers.get(b"content-length", b"0")
        # Longer than any limit, and too long for Python to read as a number.
        if length.isdigit() and (len(length) > _MAX_LENGTH_DIGITS or int(length) > limit):
            raise _too_large(limit)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Disconnected
        body = message.get("body", b"")
        if message.get("more_body"):
            try:
                body = await asyncio.wait_for(
                    _read_rest(bytearray(body), receive, limit), self._service.settings.request_timeout
                )
            except asyncio.TimeoutError:
                raise ServingError("DEADLINE_EXCEEDED", "The body did not arrive in time.", 408) from None
        if len(body) > limit:
            raise _too_large(limit)
        encoding = headers.get(b"content-encoding")
        if encoding is None or encoding.lower() == b"identity":
            return body
        if encoding.lower() != b"gzip":
            raise invalid_argument(f"Content-Encoding must be gzip. Received: {encoding.decode('ascii', 'replace')}.")
        return gunzip(body, limit)


@functools.lru_cache(maxsize=256)
def _parse_address(method: str, path: bytes) -> Target | None:
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


def find_target(method: str, path: bytes) -> Target:
    """What the address names.

    Raises:
        ServingError: INVALID_ARGUMENT if nothing can be at this address, NOT_FOUND outside of /v1/.
    """
    target = _parse_address(method, path) if len(path) <= _MAX_ADDRESS_LENGTH else None
    if target is None:
        shown = path[:200].decode("ascii", "replace")
        if not path.lower().startswith(b"/v1/"):
            raise ServingError("NOT_FOUND", f"There is nothing at {shown}")
        raise invalid_argument(f"Malformed request: {method} {shown}")
    if target.version is not None and target.version > _MAX_VERSION:
        raise invalid_argument(f"Failed to convert version: {target.version} to numeric.")
    return target


def gunzip(body: bytes, limit: int) -> bytes:
    """Unpacks a gzip body of which no more than `limit` bytes come out.

    Raises:
        ServingError: INVALID_ARGUMENT for what is no gzip, or too much of it.
    """
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise invalid_argument(f"The body must be gzip. Received: {error}.") from None
    if len(unpacked) > limit:
        raise _too_large(limit)
    if not unpacker.eof:
        raise invalid_argument("The body must be gzip. Received: one that ends too early.")
    return unpacked


class _Disconnected(Exception):
    pass


def _too_large(limit: int) -> ServingError:
    return ServingError("INVALID_ARGUMENT", f"The body must have at most {limit} bytes. Received: more.", 413)


async def _read_rest(body: bytearray, receive: Receive, limit: int) -> bytes:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Disconnected
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body"):
            return bytes(body)


async def _accept_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _unquote(text: bytes) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace")
