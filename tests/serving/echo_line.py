"""A connection in memory over an application that echoes."""

from __future__ import annotations

import asyncio
import json
import time

from serving.server.http_connection import HttpConnection
from serving.server.http_messages import Response
from tests.serving.http_exchange import Wire


class Echo:
    """Answers with the path and the body; `/later` when told to; with the error what was refused."""

    def __init__(self):
        self.requests, self.later, self.cancelled = [], [], 0

    def answer(self, request, respond):
        if request.refusal is not None:
            error = request.refusal
            return respond(Response(error.http_status, json.dumps({"error": error.message}).encode()))
        self.requests.append(request)
        response = Response(200, request.path + b" " + request.body, b"text/plain")
        if request.path != b"/later":
            return respond(response)
        self.later.append(lambda: respond(response))
        return self.cancel

    def cancel(self):
        self.cancelled += 1


class Line:
    """A connection, its wire and what answers."""

    def __init__(self, max_body_bytes=100, receive_seconds=30.0):
        self.echo, self.connections = Echo(), set()
        self.connection = HttpConnection(self.echo, max_body_bytes, receive_seconds, self.connections)
        self.wire = Wire(self.connection)

    def send(self, *parts):
        for part in parts:
            self.connection.data_received(part)

    def pass_time(self, seconds):
        """What the connection does after so many seconds."""
        self.connection.look_at_clock(time.perf_counter() + seconds)


def exchange(test, **limits):
    """Runs `test(line)` in a loop."""

    async def main():
        await test(Line(**limits))

    asyncio.run(asyncio.wait_for(main(), 30))
