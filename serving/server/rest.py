"""The REST interface of TF Serving: its routes, and their answers."""

from __future__ import annotations

from typing import Any

import orjson
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

from serving.errors import ServingError, invalid_argument
from serving.server.json_codec import decode_request, encode_response, parse_body, signature_name_of
from serving.server.service import SIGNATURE_DEF, Service
from serving.telemetry import METRICS_CONTENT_TYPE
from serving.web_app import Request, Response, Route, WebApp

METRICS_PATH = "/monitoring/prometheus/metrics"
READY_PATH = "/readyz"
_MODEL = r"(?i:/v1/models)/(?P<name>[^/:]+)(?:/(?i:versions)/(?P<version>[0-9]+)|/(?i:labels)/(?P<label>[^:]+?))?"
_MAX_VERSION = 2**63 - 1


def make_rest_app(service: Service) -> WebApp:
    """The application over a service."""

    async def predict(request: Request) -> Response:
        document = parse_body(await request.body())
        signature_name = signature_name_of(document)
        with service.store.acquire(**request.params) as servable:
            runner = servable.runner(signature_name)
            if runner is None:
                name = signature_name or "serving_default"
                raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
            inputs, rows, row_format = decode_request(document, runner, service.settings.max_rows)
            outputs = await service.predict(runner, inputs, rows)
        return Response(encode_response(outputs, row_format))

    async def unsupported(request: Request) -> Response:
        method = request.params["method"].lower()
        raise invalid_argument(f"Method {method} is not supported by a hashing model; use predict.")

    async def status(request: Request) -> Response:
        return Response(_pretty(_to_dict(service.status(**request.params))))

    async def metadata(request: Request) -> Response:
        response = service.metadata(**request.params)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata[SIGNATURE_DEF].Unpack(signatures)
        spec = response.model_spec
        return Response(_pretty({
            "model_spec": {"name": spec.name, "signature_name": "", "version": str(spec.version.value)},
            "metadata": {SIGNATURE_DEF: _to_dict(signatures)},
        }))  # fmt: skip

    async def ready(request: Request) -> Response:
        if app.stopping or not service.store.is_ready():
            raise ServingError("UNAVAILABLE", "The server is not ready.")
        return Response(b'{"ready": true}')

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.page(), content_type=METRICS_CONTENT_TYPE)

    def observe(request: Request, route: Route | None, error: ServingError | None, seconds: float) -> None:
        if route is not None and route.handler is predict:
            service.count(request.params["name"], "REST", error, seconds)

    app = WebApp(
        [
            Route("POST", _MODEL + ":(?i:predict)", predict, convert=_model_params),
            Route("POST", _MODEL + ":(?P<method>(?i:classify|regress))", unsupported),
            Route("GET", _MODEL + "/(?i:metadata)", metadata, convert=_model_params),
            Route("GET", _MODEL, status, convert=_model_params),
            Route("GET", READY_PATH, ready, is_public=True),
            Route("GET", METRICS_PATH, metrics),
        ],
        service.settings,
        observe,
        _no_route,
    )
    return app


def _model_params(groups: dict[str, Any]) -> dict[str, Any]:
    version = None if groups["version"] is None else int(groups["version"])
    if version is not None and version > _MAX_VERSION:
        raise invalid_argument(f"Failed to convert version: {version} to numeric.")
    return {**groups, "version": version}


def _no_route(method: str, path: str) -> ServingError:
    if path.lower().startswith("/v1/"):
        return invalid_argument(f"Malformed request: {method} {path}")
    return ServingError("NOT_FOUND", f"There is nothing at {path}")


def _to_dict(message: Any) -> dict[str, Any]:
    # The second option has another name in later releases of protobuf.
    return json_format.MessageToDict(message, preserving_proto_field_name=True, including_default_value_fields=True)


def _pretty(document: Any) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
