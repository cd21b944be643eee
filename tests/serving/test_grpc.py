import contextlib
import socket

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.server import running
from serving.server.settings import Settings
from tests.serving.http_exchange import PATIENCE


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield channel


@pytest.fixture(scope="module")
def prediction(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def predict_request(signature, name, value, **kwargs):
    request = predict_pb2.PredictRequest(**kwargs)
    request.model_spec.name = "cmimh"
    request.model_spec.signature_name = signature
    request.inputs[name].CopyFrom(value if hasattr(value, "tensor_shape") else tf.make_tensor_proto(value))
    return request


def refusal(call, request, **kwargs):
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=PATIENCE, **kwargs)
    return caught.value.code().name, caught.value.details()


def test_predict_gives_the_codes_of_the_model(exported, prediction):
    rows = exported.image_rows(70)
    response = prediction.Predict(predict_request("hash_image", "image", rows), timeout=PATIENCE)
    codes = b"".join(tf.make_ndarray(response.outputs["code_bytes"]).tolist())
    assert codes == exported.model.hash_images(rows).tobytes()
    assert set(response.outputs) == {"bits", "code_bytes", "probs"}
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("cmimh", 1, "hash_image")


def test_output_filter(exported, prediction):
    request = predict_request("hash_caption", "caption", [b"a cat"], output_filter=["bits"])
    assert list(prediction.Predict(request, timeout=PATIENCE).outputs) == ["bits"]
    request.output_filter.append("bits")
    assert refusal(prediction.Predict, request) == ("INVALID_ARGUMENT", "duplicate output tensor alias: bits")
    request.output_filter[:] = ["codes"]
    code, message = refusal(prediction.Predict, request)
    assert code == "INVALID_ARGUMENT"
    assert "output tensor alias not found in signature: codes" in message


def tensor(dtype, shape, **values):
    proto = tf.make_tensor_proto(0.0)
    proto.Clear()
    proto.dtype = dtype.as_datatype_enum
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    for name, value in values.items():
        getattr(proto, name).extend(value)
    return proto


@pytest.mark.parametrize(
    ("signature", "name", "value", "code", "message"),
    [
        ("x", "image", [[1.0]], "FAILED_PRECONDITION", 'Serving signature key "x" not found.'),
        ("hash_image", "text", [[1.0]], "INVALID_ARGUMENT", "Sent extra: {text}. Missing but required: {image}."),
        ("hash_image", "image", [[1.0]], "INVALID_ARGUMENT", "must have shape [rows, 572]. Received: [1, 1]."),
        ("hash_image", "image", np.zeros((1, 572)), "INVALID_ARGUMENT", "of type float32. Received: float64."),
        ("hash_image_bytes", "image_bytes", [b"x"], "INVALID_ARGUMENT", "Unknown image file format"),
        ("hash_image", "image", np.full((1, 572), np.nan, np.float32), "INVALID_ARGUMENT", "must be finite"),
        ("hash_image", "image", tensor(tf.float32, [10**9, 572], float_val=[1.0]), "INVALID_ARGUMENT", "rows"),
        ("hash_image", "image", tensor(tf.float32, [2, 572], float_val=[1.0]), "INVALID_ARGUMENT", "1144 values"),
        ("hash_image", "image", tensor(tf.float32, [-1, 572], float_val=[1.0]), "INVALID_ARGUMENT", "known shape"),
        ("hash_image", "image", np.zeros((0, 572), np.float32), "INVALID_ARGUMENT", "1 to 4096 rows. Received: 0."),
        ("hash_caption", "caption", tensor(tf.string, [3], string_val=[b"a"]), "INVALID_ARGUMENT", "3 values"),
    ],
)
def test_what_is_wrong_is_said(prediction, signature, name, value, code, message):
    received_code, received = refusal(prediction.Predict, predict_request(signature, name, value))
    assert received_code == code
    assert message in received


def test_versions_and_labels(prediction):
    request = predict_request("hash_caption", "caption", [b"a cat"])
    request.model_spec.version.value = 1
    assert prediction.Predict(request, timeout=PATIENCE).model_spec.version.value == 1
    request.model_spec.version.value = 4
    assert refusal(prediction.Predict, request)[0] == "NOT_FOUND"
    request.model_spec.version_label = "stable"
    assert refusal(prediction.Predict, request) == (
        "INVALID_ARGUMENT", "Unrecognized servable version label: stable",
    )  # fmt: skip
    assert refusal(prediction.Predict, predict_pb2.PredictRequest()) == ("INVALID_ARGUMENT", "Missing ModelSpec")


def test_metadata(prediction):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "cmimh"
    response = prediction.GetModelMetadata(request, timeout=PATIENCE)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert "hash_caption" in signatures.signature_def
    assert response.model_spec.version.value == 1
    request.metadata_field[:] = []
    assert refusal(prediction.GetModelMetadata, request)[1].endswith("must specify at least one metadata_field")
    request.metadata_field[:] = ["other"]
    assert refusal(prediction.GetModelMetadata, request)[1] == "Metadata field other is not supported"


def test_status(channel):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "cmimh"
    (status,) = stub.GetModelStatus(request, timeout=PATIENCE).model_version_status
    assert (status.version, status.state, status.status.error_code) == (1, status.AVAILABLE, 0)
    request.model_spec.name = "other"
    assert refusal(stub.GetModelStatus, request)[0] == "NOT_FOUND"


def test_health(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    for service in ("", "tensorflow.serving.PredictionService"):
        response = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)
        assert response.status == health_pb2.HealthCheckResponse.SERVING
    assert refusal(stub.Check, health_pb2.HealthCheckRequest(service="x"))[0] == "NOT_FOUND"


def test_grpc_stops_if_rest_cannot_start(exported, serve, monkeypatch):
    @contextlib.asynccontextmanager
    async def serving(app, listener, also_stop):
        socket.create_connection(("127.0.0.1", port)).close()
        raise OSError("Address already in use")
        yield

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(running, "serving", serving)
    settings = Settings(model_base=exported.base, rest_port=None, grpc_port=port, shutdown_timeout=5)
    with pytest.raises(OSError, match="Address already in use") as caught, serve(settings):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    # The traceback kept the server alive until here.
    del caught
