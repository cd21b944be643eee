"""The server as a process: a swap of versions under load, and SIGTERM in the middle of requests."""

import base64
import contextlib
import json
import select
import signal
import threading
import time
import urllib.request

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.export import export_model
from tests.serving.http_exchange import PREDICT, Client, raw_request
from tests.serving.server_process import ServerProcess, make_model

pytestmark = pytest.mark.e2e
WIDTH = 12
WAIT_SECONDS = 120


class Server(ServerProcess):
    """The process with requests to it."""

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=WAIT_SECONDS) as answer:
            return json.load(answer)

    def hash(self, rows):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{PREDICT}", self.body(rows))
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            return self.codes(json.load(answer))

    @staticmethod
    def body(rows):
        instances = [{"b64": base64.b64encode(row.tobytes()).decode()} for row in rows]
        return json.dumps({"signature_name": "hash_image_float_bytes", "instances": instances}).encode()

    @staticmethod
    def codes(answer):
        return b"".join(base64.b64decode(row["code_bytes"]["b64"]) for row in answer["predictions"])

    def states(self):
        statuses = self.get("/v1/models/cmimh")["model_version_status"]
        return {int(status["version"]): status["state"] for status in statuses}

    def wait_for(self, states):
        deadline = time.monotonic() + WAIT_SECONDS
        while self.states() != states:
            assert time.monotonic() < deadline, (self.states(), self.log)
            time.sleep(0.05)


@pytest.fixture
def models():
    return {1: make_model(WIDTH, 5, seed=1), 2: make_model(WIDTH, 5, seed=2)}


@pytest.fixture
def start(tmp_path, models):
    servers = []

    def start(*flags):
        export_model(models[1], tmp_path / "cmimh" / "1", warmup_batch_sizes=(1,))
        servers.append(Server(tmp_path / "cmimh", *flags))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def hash_over_grpc(stub, rows):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "cmimh", "hash_image"
    request.inputs["image"].CopyFrom(tf.make_tensor_proto(rows))
    response = stub.Predict(request, timeout=WAIT_SECONDS)
    return b"".join(response.outputs["code_bytes"].string_val), response.model_spec.version.value


def test_a_swap_under_load_loses_no_request(start, models, tmp_path):
    server = start("--batch-timeout", "0.02", "--grpc-port", "0", "--request-timeout", str(WAIT_SECONDS))
    rows = np.random.default_rng(0).random((3, WIDTH), np.float32)
    codes = {number: model.hash_images(rows).tobytes() for number, model in models.items()}
    assert codes[1] != codes[2]
    received, errors, stop = {number: [] for number in range(6)}, [], threading.Event()
    channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def load(number):
        while not stop.is_set():
            try:
                if number < 4:
                    received[number].append(server.hash(rows))
                else:
                    code, version = hash_over_grpc(stub, rows)
                    assert code == codes[version]
                    received[number].append(code)
            except Exception as error:
                errors.append(error)

    def wait_for_more(count):
        before = {number: len(answers) for number, answers in received.items()}
        while any(len(received[number]) < before[number] + count for number in received) and not errors:
            time.sleep(0.02)

    threads = [threading.Thread(target=load, args=[number]) for number in received]
    for thread in threads:
        thread.start()
    try:
        wait_for_more(5)
        # A broken version changes nothing but the status.
        broken = tmp_path / "cmimh" / "7"
        broken.mkdir()
        (broken / "saved_model.pb").write_bytes(b"no model")
        server.wait_for({7: "END", 1: "AVAILABLE"})
        status = server.get("/v1/models/cmimh/versions/7")["model_version_status"][0]["status"]
        assert status["error_code"] != "OK"
        assert status["error_message"]
        (broken / "saved_model.pb").unlink()
        broken.rmdir()
        assert {code for answers in received.values() for code in answers} == {codes[1]}
        export_model(models[2], tmp_path / "cmimh" / "2", warmup_batch_sizes=(1,))
        server.wait_for({7: "END", 2: "AVAILABLE", 1: "END"})
        wait_for_more(5)
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_SECONDS)
        channel.close()
    assert not errors, (errors[:3], server.log[-5:])
    print(f"{sum(map(len, received.values()))} answers, 0 lost")
    for answers in received.values():
        # Each client received the first version, then the second, and never the first again nor a mixture of both.
        swap = answers.index(codes[2])
        assert answers == [codes[1]] * swap + [codes[2]] * (len(answers) - swap)


def send_predictions(stack, server, rows, count):
    """Sends requests on a connection each, and returns the connections once the server has read the requests."""
    clients = [stack.enter_context(Client(server.port)) for _ in range(count)]
    for client in clients:
        client.send(raw_request("POST", PREDICT, server.body(rows)))
    deadline = time.monotonic() + WAIT_SECONDS
    while any(client.unread_bytes() != 0 for client in clients):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return clients


def test_sigterm_lets_running_requests_finish(start, models):
    # The batch waits for six seconds, so that the signal arrives in the meantime.
    server = start("--batch-timeout", "6", "--shutdown-timeout", "600")
    rows = np.random.default_rng(0).random((2, WIDTH), np.float32)
    with contextlib.ExitStack() as stack:
        # The first client is silent: an open connection does not delay the shutdown.
        stack.enter_context(Client(server.port))
        clients = send_predictions(stack, server, rows, 5)
        assert not select.select([client.socket for client in clients], [], [], 0)[0]
        server.process.send_signal(signal.SIGTERM)
        codes = [server.codes(client.answer().json) for client in clients]
        assert codes == [models[1].hash_images(rows).tobytes()] * 5
        assert server.wait() == 0
    # Nothing else is written to standard error, not even while TensorFlow is imported.
    assert [json.loads(line)["message"] for line in server.log][-1] == "stopped"


def test_requests_that_do_not_finish_do_not_delay_the_exit(start):
    server = start("--batch-timeout", "600", "--request-timeout", "600", "--shutdown-timeout", "1")
    rows = np.random.default_rng(0).random((2, WIDTH), np.float32)
    with contextlib.ExitStack() as stack:
        (client,) = send_predictions(stack, server, rows, 1)
        assert server.stop() == 0
        # The client learns that its request failed, or at least that the connection ended.
        with contextlib.suppress(EOFError, ConnectionError):
            answer = client.answer()
            assert answer.status >= 500
    assert any("did not finish in time" in line for line in server.log)
