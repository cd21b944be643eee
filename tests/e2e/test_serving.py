"""The server as a process: a swap of versions under load, and an end in the middle of requests."""

import base64
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf import CMIMH, get_preset
from serving.export import export_model

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
WIDTH = 12
STARTUP_SECONDS, WAIT_SECONDS = 180, 60


def make_model(seed):
    import dataclasses

    model = CMIMH(dataclasses.replace(get_preset("smoke"), seed=seed), WIDTH, 5)
    rng = np.random.default_rng(seed)
    model.adapt(rng.random((50, WIDTH)), rng.random((50, 5)))
    return model


class Server:
    def __init__(self, base, *flags):
        command = [sys.executable, "-W", "ignore", "-m", "serving.server", "--model-base", str(base)]
        self.process = subprocess.Popen(
            [*command, "--rest-port", "0", "--grpc-port", "-1", "--poll-seconds", "0.1", *flags],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        timer = threading.Timer(STARTUP_SECONDS, self.process.kill)
        timer.start()
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if '"listening"' in line:
                self.port = json.loads(line)["rest_port"]
                break
        timer.cancel()
        # Somebody has to empty the pipe, or the server would wait for it.
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=WAIT_SECONDS) as answer:
            return json.load(answer)

    def hash(self, rows):
        instances = [{"b64": base64.b64encode(row.tobytes()).decode()} for row in rows]
        body = json.dumps({"signature_name": "hash_image_float_bytes", "instances": instances}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/models/cmimh:predict", body)
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            predictions = json.load(answer)["predictions"]
        return b"".join(base64.b64decode(row["code_bytes"]["b64"]) for row in predictions)

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
    return {1: make_model(1), 2: make_model(2)}


@pytest.fixture
def start(tmp_path, models):
    servers = []

    def start(*flags):
        export_model(models[1], tmp_path / "cmimh" / "1", warmup_batch_sizes=(1,))
        servers.append(Server(tmp_path / "cmimh", *flags))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()
        server.reader.join(10)
        server.process.stderr.close()


def test_a_swap_under_load_loses_no_request(start, models, tmp_path):
    server = start("--batch-timeout", "0.02")
    rows = np.random.default_rng(0).random((3, WIDTH), np.float32)
    codes = {number: model.hash_images(rows).tobytes() for number, model in models.items()}
    assert codes[1] != codes[2]
    received, errors, stop = [], [], threading.Event()

    def load():
        while not stop.is_set():
            try:
                received.append(server.hash(rows))
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        while len(received) < 20 and not errors:
            time.sleep(0.02)
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
        assert set(received) == {codes[1]}
        export_model(models[2], tmp_path / "cmimh" / "2", warmup_batch_sizes=(1,))
        server.wait_for({7: "END", 2: "AVAILABLE", 1: "END"})
        count = len(received)
        while len(received) < count + 20 and not errors:
            time.sleep(0.02)
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_SECONDS)
    assert not errors, (errors[:3], server.log[-5:])
    assert set(received) == set(codes.values())
    # Each of the clients saw the first version, then the second, and never the first again.
    assert received[-10:] == [codes[2]] * 10


def test_sigterm_lets_running_requests_end(start, models):
    # The batch waits for two seconds, so that the signal comes while it does.
    server = start("--batch-timeout", "2")
    rows = np.random.default_rng(0).random((2, WIDTH), np.float32)
    results = []
    threads = [threading.Thread(target=lambda: results.append(server.hash(rows))) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    assert not results
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert results == [models[1].hash_images(rows).tobytes()] * 5
    assert server.process.wait(WAIT_SECONDS) == 0
    server.reader.join(WAIT_SECONDS)
    assert '"stopped"' in server.log[-1]
