"""HTTP load from one process: a fixed request over many connections, as fast as it is answered or at a fixed rate.

Only sockets and the standard library, so that it takes as little as possible of the processor that it shares.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from pathlib import Path

_RECEIVE_BYTES = 1 << 16
_SILENCE_SECONDS = 30.0


def run(port: int, requests: list[bytes], connections: int, seconds: float, rate: float | None = None) -> dict:
    """Sends `requests` in turn, one at a time on each connection.

    Args:
        port: of the server on 127.0.0.1.
        requests: whole HTTP requests.
        connections: their number.
        seconds: how long new requests are sent.
        rate: requests a second; None sends the next one as soon as the last one was answered. With a rate, the time
            from when a request was due counts, so that a stall shows in all that it held up.

    Returns:
        "count", "errors", "seconds", "rate", and "p50", "p99" in seconds.
    """
    selector = selectors.DefaultSelector()
    idle = []
    for _ in range(connections):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ)
        idle.append(connection)
    pending: dict[socket.socket, float] = {}
    partial: dict[socket.socket, bytes] = {}
    latencies: list[float] = []
    errors = sent = 0
    start = last_answer = time.perf_counter()
    end = start + seconds
    while True:
        now = time.perf_counter()
        while idle and now < end:
            due = now if rate is None else start + sent / rate
            if due > now:
                break
            connection = idle.pop()
            connection.sendall(requests[sent % len(requests)])
            pending[connection] = due
            sent += 1
        if now >= end and not pending:
            break
        wait = _SILENCE_SECONDS if rate is None or now >= end else max(0.0, start + sent / rate - now)
        for key, _ in selector.select(min(wait, max(0.0, end - now) or _SILENCE_SECONDS)):
            connection = key.fileobj
            answer = partial.pop(connection, b"") + connection.recv(_RECEIVE_BYTES)
            if not is_complete(answer):
                partial[connection] = answer
                continue
            last_answer = time.perf_counter()
            latencies.append(last_answer - pending.pop(connection))
            errors += not answer.startswith(b"HTTP/1.1 200")
            idle.append(connection)
        if time.perf_counter() - last_answer > _SILENCE_SECONDS:
            raise TimeoutError(f"The server did not answer for {_SILENCE_SECONDS:g} seconds.")
    elapsed = last_answer - start
    for connection in (*idle, *pending):
        connection.close()
    latencies.sort()
    return {
        "count": len(latencies),
        "errors": errors,
        "seconds": elapsed,
        "rate": len(latencies) / elapsed,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
    }


def is_complete(answer: bytes) -> bool:
    """Whether the bytes hold a whole HTTP answer with a Content-Length.

    Raises:
        ConnectionError: if the server has hung up.
    """
    if not answer:
        raise ConnectionError("The server closed a connection.")
    end_of_headers = answer.find(b"\r\n\r\n")
    if end_of_headers < 0:
        return False
    length_at = answer.find(b"content-length: ")
    length = int(answer[length_at + 16 : answer.index(b"\r\n", length_at)])
    return len(answer) >= end_of_headers + 4 + length


def run_from_file(path: str) -> None:
    """For a process of its own: reads the arguments of `run` from a JSON file and prints its result as JSON."""
    arguments = json.loads(Path(path).read_text(encoding="utf-8"))
    arguments["requests"] = [request.encode("latin-1") for request in arguments["requests"]]
    json.dump(run(**arguments), sys.stdout)
