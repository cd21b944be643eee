"""The REST interface over a model in memory: requests in, answers out, without sockets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from pathlib import Path

from serving.server.http_connection import HttpConnection
from serving.server.rest import RestApplication
from serving.server.service import Service
from serving.server.settings import Settings
from tests.serving.http_exchange import Answer, Wire, raw_request

PREDICT = "/v1/models/cmimh:predict"


@contextlib.contextmanager
def running_service(store, **settings):
    """Inside a running loop: a service over models that are loaded."""
    service = Service(Settings(model_base=Path("unused"), **settings), store)
    try:
        yield service
    finally:
        service.close()


def connect(service: Service) -> tuple[HttpConnection, Wire]:
    """A new connection to the REST interface."""
    settings = service.settings
    connection = HttpConnection(RestApplication(service), settings.max_body_bytes, settings.request_timeout, set())
    return connection, Wire(connection)


async def ask(service, method, path, body=b"", headers=None) -> Answer:
    """The answer to one request on a connection of its own."""
    connection, wire = connect(service)
    connection.data_received(raw_request(method, path, body, headers))
    answer = await wire.answer()
    wire.close()
    return answer


def run(store, *requests, **settings):
    """The answers to requests, each the arguments of `ask`; a single one as it is."""

    async def main():
        with running_service(store, **settings) as service:
            return [await ask(service, *request) for request in requests]

    answers = asyncio.run(asyncio.wait_for(main(), 60))
    return answers[0] if len(answers) == 1 else answers


def predict(signature, **content):
    """A Predict request, for `run`."""
    return ("POST", PREDICT, {"signature_name": signature, **content})


def b64(value: bytes) -> dict[str, str]:
    """TF Serving's way to write bytes."""
    return {"b64": base64.b64encode(value).decode()}
