"""The REST interface: TF Serving's answers to TF Serving's addresses."""

from __future__ import annotations

import logging
import time
import zlib

import orjson

from serving.server.addresses import Target, find_target
from serving.server.batcher import Outputs
from serving.server.errors import ServingError, from_exception, invalid_argument
from serving.server.http_messages import Cancel, Request, Respond, Response
from serving.server.model_description import metadata_json, status_json
from serving.server.request_json import decode_request, parse_body, signature_name_of
from serving.server.response_json import encode_response
from serving.server.service import Service

logger = logging.getLogger(__name__)

_METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_ERROR_HEADERS = {
    "UNAUTHENTICATED": (b"www-authenticate", b"Bearer"),
    "RESOURCE_EXHAUSTED": (b"retry-after", b"1"),
    "UNAVAILABLE": (b"retry-after", b"1"),
}


class RestApplication:
    """Answers whole HTTP requests; all methods belong to the event loop.

    Args:
        service: what does the work.
    """

    def __init__(self, service: Service):
        self._service = service

    def answer(self, request: Request, respond: Respond) -> Cancel | None:
        """Calls `respond` once: now, or for a prediction later, unless that is cancelled."""
        exchange = _Exchange(self._service, request, respond)
        if request.refusal is not None:
            exchange.model = _model_to_predict(request)
            exchange.fail(request.refusal)
            return None
        try:
            target = find_target(request.method, request.path)
            if target.method == "ready":
                if self._service.is_ready():
                    exchange.finish(Response(200, b'{"ready": true}'))
                else:
                    error = ServingError("UNAVAILABLE", "The server is not ready.")
                    exchange.finish(Response(error.http_status, b'{"ready": false}'), error)
                return None
            if target.method == "predict":
                exchange.model = target.model
            self._service.check_token(request.headers.get(b"authorization"))
            if target.method == "predict":
                return self._predict(target, exchange)
            exchange.finish(self._describe(target))
        except Exception as problem:
            exchange.fail(problem)
        return None

    def _predict(self, target: Target, exchange: _Exchange) -> Cancel:
        service = self._service
        document = parse_body(unpacked_body(exchange.request, service.settings.max_body_bytes))
        signature_name = signature_name_of(document)
        servable = service.store.take(target.model, target.version, target.label)
        try:
            runner = servable.runner(signature_name)
            if runner is None:
                name = signature_name or "serving_default"
                raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
            inputs, rows, row_format = decode_request(document, runner, service.settings.max_rows)

            def deliver(outputs: Outputs | ServingError) -> None:
                service.store.release(servable)
                try:
                    if isinstance(outputs, ServingError):
                        raise outputs
                    response = Response(200, encode_response(outputs, row_format))
                except Exception as error:
                    exchange.fail(error)
                else:
                    exchange.finish(response)

            task = service.submit(runner, inputs, rows, deliver)
        except BaseException:
            service.store.release(servable)
            raise
        return lambda: task.finish(ServingError("CANCELLED", "The client hung up."))

    def _describe(self, target: Target) -> Response:
        store = self._service.store
        if target.method == "metrics":
            return Response(200, self._service.metrics.page(), _METRICS_TYPE)
        if target.method == "status":
            return Response(200, status_json(store.statuses(target.model, target.version, target.label)))
        if target.method == "metadata":
            with store.acquire(target.model, target.version, target.label) as servable:
                return Response(200, metadata_json(servable))
        raise invalid_argument(f"Method {target.method} is not supported by a hashing model; use predict.")


class _Exchange:
    """One request on its way to its answer, which is logged, and counted if a `model` was to predict."""

    __slots__ = ("_respond", "_service", "model", "request", "request_id")

    def __init__(self, service: Service, request: Request, respond: Respond):
        self._service, self.request, self._respond = service, request, respond
        self.request_id = service.request_id(request.headers.get(b"x-request-id"))
        self.model: str | None = None

    def finish(self, response: Response, error: ServingError | None = None) -> None:
        request = self.request
        response.request_id = self.request_id.encode("ascii")
        self._respond(response)
        seconds = time.perf_counter() - request.started
        self._service.finish(self.request_id, self.model, "REST", (request.method, request.path), error, seconds)

    def fail(self, problem: Exception) -> None:
        error = from_exception(problem)
        if error is not problem:
            logger.error("request failed", exc_info=problem, extra={"request_id": self.request_id})
        headers = (_ERROR_HEADERS[error.code],) if error.code in _ERROR_HEADERS else ()
        body = orjson.dumps({"error": error.message})
        self.finish(Response(error.http_status, body, headers=headers), error)


def _model_to_predict(request: Request) -> str | None:
    try:
        target = find_target(request.method, request.path)
    except ServingError:
        return None
    return target.model if target.method == "predict" else None


def unpacked_body(request: Request, limit: int) -> bytes:
    """The body as it was before compression.

    Raises:
        ServingError: INVALID_ARGUMENT for an encoding other than gzip, or what `gunzip` raises.
    """
    encoding = request.headers.get(b"content-encoding")
    if encoding is None or encoding.lower() == b"identity":
        return request.body
    if encoding.lower() != b"gzip":
        raise invalid_argument(f"Content-Encoding must be gzip. Received: {encoding.decode('ascii', 'replace')}.")
    return gunzip(request.body, limit)


def gunzip(body: bytes, limit: int) -> bytes:
    """Unpacks a gzip body, and stops as soon as more than `limit` bytes have come out.

    Raises:
        ServingError: INVALID_ARGUMENT for what is no gzip, with the status 413 for too much of it.
    """
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise invalid_argument(f"The body must be gzip. Received: {error}.") from None
    if len(unpacked) > limit:
        message = f"The body must have at most {limit} bytes. Received: more, once unpacked."
        raise ServingError("INVALID_ARGUMENT", message, 413)
    if not unpacker.eof:
        raise invalid_argument("The body must be gzip. Received: one that ends too early.")
    return unpacked
