"""The gRPC interface: TF Serving's Predict, GetModelMetadata and GetModelStatus, and the standard health service."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.errors import ServingError, from_exception, invalid_argument
from serving.server.servable import Column, InputSpec, Runner
from serving.server.service import SIGNATURE_DEF, Service
from serving.web_app import Guard, WebApp

logger = logging.getLogger(__name__)

Handler = Callable[[Any], Awaitable[Any]]


class _Answering:
    """Token, errors, metrics and request log around a handler."""

    def __init__(self, service: Service, guard: Guard):
        self._service, self._guard = service, guard

    async def _answer(self, handler: Handler, name: str, request: Any, context: grpc.aio.ServicerContext) -> Any:
        started = time.perf_counter()
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        request_id = self._guard.request_id(metadata.get("x-request-id"))
        error, response = None, None
        try:
            self._guard.check_token(metadata.get("authorization"))
            response = await handler(request)
        except ServingError as problem:
            error = problem
        except Exception as problem:
            logger.error("request failed", exc_info=problem, extra={"request_id": request_id})
            error = from_exception(problem)
        seconds = time.perf_counter() - started
        self._guard.log(request_id, [name], error, seconds)
        if name == "Predict":
            self._service.count(request.model_spec.name, "GRPC", error, seconds)
        if error is not None:
            await context.abort(getattr(grpc.StatusCode, error.code), error.message)
        return response


class PredictionService(_Answering, prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata. The other methods, which a hashing model does not need, are UNIMPLEMENTED."""

    async def Predict(self, request: predict_pb2.PredictRequest, context: grpc.aio.ServicerContext) -> Any:
        remaining = context.time_remaining()
        return await self._answer(lambda message: self._predict(message, remaining), "Predict", request, context)

    async def GetModelMetadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, context: grpc.aio.ServicerContext
    ) -> Any:
        return await self._answer(self._metadata, "GetModelMetadata", request, context)

    async def _predict(self, request: predict_pb2.PredictRequest, timeout: float | None) -> Any:
        spec = _checked_spec(request)
        response = predict_pb2.PredictResponse()
        with self._service.store.acquire(spec.name, *_version_choice(spec)) as servable:
            signature_name = spec.signature_name or "serving_default"
            runner = servable.runner(signature_name)
            if runner is None:
                raise ServingError("FAILED_PRECONDITION", f'Serving signature key "{signature_name}" not found.')
            inputs = decode_inputs(request, runner, self._service.settings.max_rows)
            rows = runner.count_rows(inputs, self._service.settings.max_rows)
            wanted = _wanted_outputs(request, runner)
            outputs = await self._service.predict(runner, inputs, rows, timeout)
            columns = outputs.columns()
            response.model_spec.name = servable.name
            response.model_spec.version.value = servable.version
            response.model_spec.signature_name = signature_name
        for name in wanted:
            response.outputs[name].CopyFrom(_tensor_proto(columns[name]))
        return response

    async def _metadata(self, request: get_model_metadata_pb2.GetModelMetadataRequest) -> Any:
        spec = _checked_spec(request)
        if not request.metadata_field:
            raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
        for name in request.metadata_field:
            if name != SIGNATURE_DEF:
                raise invalid_argument(f"Metadata field {name} is not supported")
        return self._service.metadata(spec.name, *_version_choice(spec))


class ModelService(_Answering, model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus."""

    async def GetModelStatus(
        self, request: get_model_status_pb2.GetModelStatusRequest, context: grpc.aio.ServicerContext
    ) -> Any:
        return await self._answer(self._status, "GetModelStatus", request, context)

    async def _status(self, request: get_model_status_pb2.GetModelStatusRequest) -> Any:
        spec = _checked_spec(request)
        return self._service.status(spec.name, *_version_choice(spec))


class HealthService(health_pb2_grpc.HealthServicer):
    """The standard health check. The empty service name means the whole server."""

    def __init__(self, service: Service, app: WebApp):
        self._service, self._app = service, app

    async def Check(self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext) -> Any:
        if request.service not in ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Unknown service: {request.service}")
        states = health_pb2.HealthCheckResponse
        ready = not self._app.stopping and self._service.store.is_ready()
        return health_pb2.HealthCheckResponse(status=states.SERVING if ready else states.NOT_SERVING)


class _MalformedMessages(grpc.aio.ServerInterceptor):
    """Rejects bytes that are not a message; by itself, gRPC would answer UNKNOWN and log a traceback."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler

        def deserialize(data: bytes) -> Any:
            try:
                return handler.request_deserializer(data)
            except DecodeError:
                return None

        async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:
            if request is None:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The request is not a valid message.")
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(answer, deserialize, handler.response_serializer)


def make_grpc_server(service: Service, app: WebApp) -> grpc.aio.Server:
    """The server with all three services, without a port yet.

    Args:
        service: answers the requests.
        app: the REST interface; both share token, request ids and state.
    """
    limit = service.settings.max_body_bytes
    server = grpc.aio.server(
        interceptors=[_MalformedMessages()],
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", -1),
            # A second server must not take over half of the connections.
            ("grpc.so_reuseport", 0),
        ],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(service, app.guard), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(service, app.guard), server)
    health_pb2_grpc.add_HealthServicer_to_server(HealthService(service, app), server)
    return server


def decode_inputs(request: predict_pb2.PredictRequest, runner: Runner, max_rows: int) -> dict[str, Column]:
    """The columns of a request, after a check of their names, types and sizes."""
    sent, expected = set(request.inputs), set(runner.inputs)
    if sent != expected:
        raise invalid_argument(
            f"input size does not match signature: {len(sent)}!={len(expected)} len({{{','.join(sorted(sent))}}}) != "
            f"len({{{','.join(sorted(expected))}}}). Sent extra: {{{','.join(sorted(sent - expected))}}}. Missing but "
            f"required: {{{','.join(sorted(expected - sent))}}}."
        )
    return {name: _decode_tensor(request.inputs[name], spec, max_rows) for name, spec in runner.inputs.items()}


def _decode_tensor(tensor: Any, spec: InputSpec, max_rows: int) -> Column:
    try:
        dtype = tf.dtypes.as_dtype(tensor.dtype)
    except TypeError:
        raise invalid_argument(f"`{spec.name}` must be of type {spec.type_name}. Received: an unknown type.") from None
    if dtype.name != spec.type_name:
        raise invalid_argument(f"`{spec.name}` must be of type {spec.type_name}. Received: {dtype.name}.")
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if tensor.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise invalid_argument(f"`{spec.name}` must have a known shape. Received: {list(shape)}.")
    # Before the values are read: a tensor of one value may declare any shape, and would be expanded to it.
    spec.check(shape)
    if shape and shape[0] > max_rows:
        raise invalid_argument(f"A request must have 1 to {max_rows} rows. Received: {shape[0]}.")
    num_values = math.prod(shape)
    sent_values = len(tensor.string_val) if spec.dtype == object else _num_values(tensor, spec)
    if sent_values != num_values:
        raise invalid_argument(f"`{spec.name}` must hold {num_values} values. Received: {sent_values}.")
    if spec.dtype == object and len(shape) == 1:
        return list(tensor.string_val)
    try:
        return np.asarray(tf.make_ndarray(tensor))
    except (TypeError, ValueError) as error:
        raise invalid_argument(f"`{spec.name}` must be a valid tensor. Received: {error}.") from None


def _num_values(tensor: Any, spec: InputSpec) -> int:
    if tensor.tensor_content:
        return len(tensor.tensor_content) // spec.dtype.itemsize
    fields = ("float_val", "double_val", "int_val", "int64_val", "bool_val", "half_val", "uint32_val", "uint64_val")
    return max(len(getattr(tensor, name)) for name in fields)


def _tensor_proto(column: Column) -> Any:
    if isinstance(column, list):
        return tf.make_tensor_proto(column, tf.string, [len(column)])
    return tf.make_tensor_proto(column)


def _wanted_outputs(request: predict_pb2.PredictRequest, runner: Runner) -> list[str]:
    seen: list[str] = []
    for name in request.output_filter:
        if name not in runner.output_names:
            raise invalid_argument(
                f"output tensor alias not found in signature: {name} Outputs expected to be in the set "
                f"{{{','.join(runner.output_names)}}}."
            )
        if name in seen:
            raise invalid_argument(f"duplicate output tensor alias: {name}")
        seen.append(name)
    return seen or list(runner.output_names)


def _checked_spec(request: Any) -> model_pb2.ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec


def _version_choice(spec: model_pb2.ModelSpec) -> tuple[int | None, str | None]:
    choice = spec.WhichOneof("version_choice")
    version = spec.version.value if choice == "version" else None
    return version, spec.version_label if choice == "version_label" else None
