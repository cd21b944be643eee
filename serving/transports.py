"""The client's connection to a server: REST or gRPC, each behind `predict(signature, rows)`."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import numpy as np

SCHEMES = ("http", "https", "grpc", "grpcs")
_INPUT_NAMES = {
    "hash_image_float_bytes": "image_float_bytes",
    "hash_text_float_bytes": "text_float_bytes",
    "hash_image_bytes": "image_bytes",
    "hash_caption": "caption",
}


class ServerError(Exception):
    """The server rejected a request, or cannot be reached.

    Attributes:
        status: the HTTP status, or the name of the gRPC code.
        is_too_large: whether the request was too large, so that a retry would fail again.
    """

    def __init__(self, status: int | str, message: str, is_too_large: bool = False):
        super().__init__(f"{status}: {message}")
        self.status = status
        self.is_too_large = is_too_large


@dataclass(frozen=True)
class Endpoint:
    """A model on a server. The attributes are those of `HashingClient`."""

    url: str
    model: str
    version: int | None
    label: str | None
    timeout: float
    token: str | None
    certificate: str | os.PathLike[str] | None

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        if address.scheme not in SCHEMES or not address.netloc:
            raise ValueError(f"`url` must name one of {', '.join(SCHEMES)} and a host. Received: {self.url!r}.")
        if self.version is not None and self.label is not None:
            raise ValueError(
                f"`version` or `label` must be None. Received: version={self.version}, label={self.label!r}."
            )

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}


class Transport(Protocol):
    """One connection to a server."""

    def predict(self, signature: str, rows: Sequence[bytes]) -> list[bytes]:
        """The packed codes of the rows.

        Raises:
            ServerError: if the server rejects the request or cannot be reached.
        """

    def predict_probs(self, signature: str, rows: Sequence[bytes]) -> tuple[list[bytes], np.ndarray]:
        """Packed codes of the rows, and P(h = 1 | x), float32 [N, L].

        Raises:
            ServerError: if there are none.
        """

    def close(self) -> None:
        """Closes the connection."""


def connect(endpoint: Endpoint) -> Transport:
    """The transport for the scheme of the URL. Nothing is sent yet."""
    return _GrpcTransport(endpoint) if endpoint.url.startswith("grpc") else _RestTransport(endpoint)


class _RestTransport:
    def __init__(self, endpoint: Endpoint):
        import ssl

        import httpx

        self._unreachable = httpx.TransportError
        choice = ""
        if endpoint.version is not None:
            choice = f"/versions/{endpoint.version}"
        elif endpoint.label is not None:
            choice = f"/labels/{quote(endpoint.label, safe='')}"
        self._address = f"{endpoint.url.rstrip('/')}/v1/models/{quote(endpoint.model, safe='')}{choice}:predict"
        verify: Any = True
        if endpoint.certificate is not None:
            # Here, and not by `ssl`, a missing file is named.
            Path(endpoint.certificate).open("rb").close()
            try:
                verify = ssl.create_default_context(cafile=os.fspath(endpoint.certificate))
            except ssl.SSLError as error:
                raise ValueError(f"`certificate` must be a PEM file. Received: {endpoint.certificate}.") from error
        # Proxies from the environment are for web sites, not for this server.
        self._client = httpx.Client(timeout=endpoint.timeout, verify=verify, headers=endpoint.headers, trust_env=False)

    def predict(self, signature: str, rows: Sequence[bytes]) -> list[bytes]:
        return _codes_of(self._predictions(signature, rows))

    def predict_probs(self, signature: str, rows: Sequence[bytes]) -> tuple[list[bytes], np.ndarray]:
        predictions = self._predictions(signature, rows)
        return _codes_of(predictions), np.array([row["probs"] for row in predictions], np.float32)

    def _predictions(self, signature: str, rows: Sequence[bytes]) -> list[dict[str, Any]]:
        instances = [{"b64": base64.b64encode(row).decode("ascii")} for row in rows]
        try:
            response = self._client.post(self._address, json={"signature_name": signature, "instances": instances})
        except self._unreachable as error:
            raise ServerError(503, f"{self._address} cannot be reached: {error}") from error
        if response.status_code != 200:
            status = response.status_code
            raise ServerError(status, _error_text(response), is_too_large=status == 413)
        return response.json()["predictions"]

    def close(self) -> None:
        self._client.close()


class _GrpcTransport:
    def __init__(self, endpoint: Endpoint):
        import grpc
        from tensorflow_serving.apis import model_pb2, prediction_service_pb2_grpc

        self._failed = grpc.RpcError
        self._spec = model_pb2.ModelSpec(name=endpoint.model)
        if endpoint.version is not None:
            self._spec.version.value = endpoint.version
        elif endpoint.label is not None:
            self._spec.version_label = endpoint.label
        address = urlsplit(endpoint.url)
        if address.scheme == "grpcs":
            roots = None if endpoint.certificate is None else Path(endpoint.certificate).read_bytes()
            self._channel = grpc.secure_channel(address.netloc, grpc.ssl_channel_credentials(roots))
        else:
            self._channel = grpc.insecure_channel(address.netloc)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._timeout = endpoint.timeout
        self._metadata = list(endpoint.headers.items())

    def predict(self, signature: str, rows: Sequence[bytes]) -> list[bytes]:
        return list(self._outputs(signature, rows, ["code_bytes"])["code_bytes"].string_val)

    def predict_probs(self, signature: str, rows: Sequence[bytes]) -> tuple[list[bytes], np.ndarray]:
        import tensorflow as tf

        outputs = self._outputs(signature, rows, ["code_bytes", "probs"])
        return list(outputs["code_bytes"].string_val), tf.make_ndarray(outputs["probs"])

    def _outputs(self, signature: str, rows: Sequence[bytes], names: Sequence[str]) -> Any:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest(output_filter=names)
        request.model_spec.CopyFrom(self._spec)
        request.model_spec.signature_name = signature
        tensor = tf.make_tensor_proto(list(rows), tf.string, [len(rows)])
        request.inputs[_INPUT_NAMES[signature]].CopyFrom(tensor)
        try:
            response = self._stub.Predict(request, timeout=self._timeout, metadata=self._metadata)
        except self._failed as error:
            # A full queue and a message that is too large have the same code, but different texts.
            is_too_large = "message larger than max" in (error.details() or "")
            raise ServerError(error.code().name, error.details(), is_too_large) from error
        return response.outputs

    def close(self) -> None:
        self._channel.close()


def _codes_of(predictions: list[dict[str, Any]]) -> list[bytes]:
    return [base64.b64decode(row["code_bytes"]["b64"]) for row in predictions]


def _error_text(response: Any) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
