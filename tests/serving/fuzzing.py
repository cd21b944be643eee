"""Random requests against a running server, over REST and gRPC: broken JSON, HTTP, protobufs and tensors.

`make fuzz` sends 100,000 requests instead of a few thousand, and prints the answers by status and the memory of the
process.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.serving.http_exchange import PREDICT, Client, raw_request

SIGNATURES = (
    "hash_image", "hash_text", "hash_image_bytes", "hash_caption", "hash_text_float_bytes", "serving_default", "x", "",
)  # fmt: skip
GOOD_REQUEST = raw_request("POST", PREDICT, {"signature_name": "hash_caption", "instances": ["a red cat"]})
INPUTS = ("image", "text", "image_bytes", "caption", "text_float_bytes", "examples", "instances", "b64", "")
PATHS = (
    PREDICT, PREDICT, PREDICT, PREDICT, PREDICT, PREDICT,
    "/v1/models/cmimh/versions/999:predict", "/v1/models/cmimh/labels/%ff:predict",
    "/v1/models/cmimh/versions/-1:predict", "/v1/models/cmimh/versions/99999999999999999999:predict",
    "/v1/models/%00:predict", "/v1/models//:predict", "/v1/models/cmimh:explain", "/v1/models/cmimh:classify",
    "/v1/models/cmimh", "/v1/models/cmimh/metadata", "/readyz", "/", "*", "//", "/%zz", "/v1/..%2f..%2fetc/passwd",
)  # fmt: skip
METHODS = ("POST",) * 8 + ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "POSTPOST", "get")
_PATIENCE_SECONDS = 1.0
_THREADS = 16
ENCODINGS = (None,) * 6 + ("gzip", "gzip", "GZIP", "deflate", "gzip, gzip", "identity")
LENGTHS = (None,) * 12 + ("-1", "0", "7", "99999999999", "9" * 300, "1e9", "abc")
HEADERS = (
    "X-Request-Id: \xff", "X-Request-Id: " + "a" * 200, "Authorization: Bearer \xe9", "Host: y", "Content-Type: \x01",
    "Transfer-Encoding: chunked", "Connection: close", "Connection: Upgrade\r\nUpgrade: h2c", "Expect: nothing",
    "Expect: 100-continue", "Content-Encoding: gzip", "no header", ": empty", "X:" + " " * 1000, "Cookie: \r\n folded",
)  # fmt: skip


class RestFuzzer:
    """Random REST requests over connections that are kept until the server closes them.

    Args:
        port: of the server.
        rng: source of all choices.
    """

    def __init__(self, port: int, rng: random.Random):
        self._port, self._rng = port, rng
        self._client: Client | None = None

    def send(self) -> str:
        """Sends one request; returns the status of the answer, or "none" if the server closes or waits for more."""
        raw, is_valid = self.request()
        if self._client is None:
            self._client = Client(self._port)
        self._client.socket.settimeout(60 if is_valid else _PATIENCE_SECONDS)
        try:
            self._client.send(raw)
            answer = self._client.answer()
            if answer.status == 100:
                answer = self._client.answer()
        except (OSError, EOFError):
            self.close()
            assert not is_valid, raw[:300]
            return "none"
        # After a request with a wrong length the server would not understand the next one.
        if not is_valid or answer.headers.get("connection") == "close":
            self.close()
        assert answer.status < 500, (answer.status, raw[:300], answer.body)
        return str(answer.status)

    def close(self) -> None:
        if self._client is not None:
            self._client.socket.close()
            self._client = None

    def request(self) -> tuple[bytes, bool]:
        """The bytes of one request, and whether they are valid HTTP, which half of them are."""
        rng, body = self._rng, self._body()
        encoding, length = rng.choice(ENCODINGS), None
        if encoding is not None and rng.random() < 0.7:
            body = gzip.compress(body)
            body = body[: rng.randrange(len(body))] if rng.random() < 0.3 else body
        lines = [f"{rng.choice(METHODS)} {rng.choice(PATHS)} HTTP/1.1", "Host: x"]
        if encoding is not None:
            lines.append(f"Content-Encoding: {encoding}")
        is_valid = rng.random() < 0.5
        if not is_valid:
            length = rng.choice(LENGTHS)
            lines += rng.sample(HEADERS, rng.randrange(3))
        lines.append(f"Content-Length: {len(body) if length is None else length}")
        raw = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
        if not is_valid and rng.random() < 0.3:
            raw = damaged(raw, rng)
        # What lacks of a body is sent as zeros, followed by the end of a chunk and of headers.
        return (raw, True) if is_valid else (raw + bytes(64) + b"\r\n0\r\n\r\n\r\n", False)

    def _body(self) -> bytes:
        rng = self._rng
        kind = rng.randrange(8)
        if kind == 0:
            return rng.randbytes(rng.randrange(64))
        if kind == 1:
            opening = rng.choice([b"[", b'{"a":', b"[[", b'["'])
            return b'{"signature_name": "hash_image", "instances": ' + opening * rng.choice([10, 1000, 100_000])
        if kind == 2:
            depth = rng.randrange(3, 2000)
            return b'{"signature_name": "hash_image", "instances": ' + b"[" * depth + b"]" * depth + b"}"
        document = {"signature_name": rng.choice(SIGNATURES)}
        document[rng.choice(["instances", "inputs"])] = self._value(0)
        if rng.random() < 0.1:
            document[rng.choice(["inputs", "instances", "signature_name", "image"])] = self._value(0)
        body = json.dumps(document).encode()
        return damaged(body, rng) if kind == 3 else body

    def _value(self, depth: int) -> object:
        rng = self._rng
        kind = rng.randrange(10 if depth < 3 else 7)
        if kind < 3:
            return rng.choice(
                [None, True, False, 0, -1, 2**70, 0.5, 1e39, float("nan"), float("-inf"), "", "a red cat"]
            )
        if kind == 3:
            return {"b64": rng.choice(["", "AAAA", "a", "====", "\xe9", 7, "AAA%", "R0lGODlhAQABAAAAACw="])}
        if kind == 4:
            return "".join(map(chr, (rng.randrange(0x20, 0xD800) for _ in range(rng.randrange(9)))))
        if kind < 7:
            return [rng.random()] * rng.choice([1, 2, 572, 573])
        if kind == 7:
            return {rng.choice(INPUTS): self._value(depth + 1) for _ in range(rng.randrange(3))}
        return [self._value(depth + 1) for _ in range(rng.randrange(4))]


class GrpcFuzzer:
    """Random Predict requests.

    Args:
        channel: to the server.
        rng: source of all choices.
    """

    def __init__(self, channel: grpc.Channel, rng: random.Random):
        self._rng = rng
        self._numpy_rng = np.random.default_rng(rng.randrange(2**32))
        self._call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

    def send(self) -> str:
        """Sends one request; returns the name of the code."""
        message = self.request().SerializeToString()
        if self._rng.random() < 0.2:
            message = damaged(message, self._rng)
        code, details = self._answer(message)
        assert code in ("OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND"), (code, details, message[:300])
        return code

    def _answer(self, message: bytes) -> tuple[str, str]:
        try:
            self._call(message, timeout=60)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return "OK", ""

    def request(self) -> predict_pb2.PredictRequest:
        """A message with random tensors."""
        rng = self._rng
        request = predict_pb2.PredictRequest()
        request.model_spec.name = rng.choice(["cmimh"] * 8 + ["", "other"])
        request.model_spec.signature_name = rng.choice(SIGNATURES)
        if rng.random() < 0.1:
            request.model_spec.version.value = rng.choice([1, -1, 2**63 - 1])
        if rng.random() < 0.1:
            request.output_filter.extend(rng.choices(["bits", "probs", "", "x"], k=2))
        if rng.random() < 0.1:
            # A good input, so that the server also has to hash.
            request.model_spec.signature_name = "hash_caption"
            request.inputs["caption"].CopyFrom(tf.make_tensor_proto(["a red cat"] * rng.randrange(1, 4)))
            return request
        for _ in range(rng.choice([0, 1, 1, 1, 1, 2])):
            request.inputs[rng.choice(INPUTS)].CopyFrom(self._tensor())
        return request

    def _tensor(self) -> object:
        rng = self._rng
        shape = rng.choice([[], [1], [2], [0], [1, 572], [2, 572], [1, 3], [1, 1, 1]])
        kind = rng.randrange(3)
        if kind == 0:
            values = np.array([rng.randbytes(rng.randrange(9)) for _ in range(int(np.prod(shape)))], object)
            tensor = tf.make_tensor_proto(values.reshape(shape).tolist(), tf.string, shape)
        else:
            dtype = rng.choice([np.float32] * 6 + [np.float64, np.int32, np.int64, np.float16, bool])
            values = (
                self._numpy_rng.normal(size=shape) if kind == 1 else np.full(shape, rng.choice([np.nan, np.inf, 0]))
            )
            with np.errstate(invalid="ignore"):
                tensor = tf.make_tensor_proto(values.astype(dtype))
        if rng.random() < 0.2:
            for dim in tensor.tensor_shape.dim:
                dim.size = rng.choice([-1, 0, 1, 10**9, 2**62])
        if rng.random() < 0.1:
            tensor.dtype = rng.randrange(40)
        if rng.random() < 0.1:
            tensor.tensor_content = rng.randbytes(rng.randrange(40))
        return tensor


def resident_megabytes() -> int:
    """The resident memory of this process."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) >> 10


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One byte is replaced, removed, or everything behind it."""
    at = rng.randrange(len(data)) if data else 0
    return data[:at] + rng.choice([rng.randbytes(1) + data[at + 1 :], data[at + 1 :], b""])


def fuzz(rest_port: int, grpc_port: int, count: int, seed: int, report: Callable[[int], None]) -> Counter[str]:
    """Sends `count` requests from several threads at once, half of them over REST and half over gRPC.

    Args:
        rest_port, grpc_port: of the server.
        count: number of requests, rounded up to a multiple of the threads.
        seed: of all choices.
        report: called with the number of requests, from time to time and at the end.

    Returns:
        The number of answers by interface and status.

    Raises:
        AssertionError: if an answer says that the server failed, or a valid request has none.
    """
    share = -(-count // _THREADS)
    rounds = max(1, share // 100)

    def send(number: int) -> Counter[str]:
        answers: Counter[str] = Counter()
        rest = RestFuzzer(rest_port, random.Random(f"{seed} REST {number}"))
        calls = GrpcFuzzer(channel, random.Random(f"{seed} gRPC {number}"))
        for done in range(share):
            answers[f"gRPC {calls.send()}" if done % 2 else f"REST {rest.send()}"] += 1
            if number == 0 and (done + 1) % -(-share // rounds) == 0:
                report((done + 1) * _THREADS)
        rest.close()
        return answers

    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel, ThreadPoolExecutor(_THREADS) as threads:
        return sum(threads.map(send, range(_THREADS)), Counter())
