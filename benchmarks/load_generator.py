"""HTTP load from one process: fixed requests over many connections, as fast as they are answered or at a fixed rate.

It shares its processors with the server that it measures, so it does little: whole requests as bytes, one system call
to send and one to receive, and only status and length of an answer are parsed.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from pathlib import Path

_RECEIVE_BYTES = 1 << 14
_SILENCE_SECONDS = 30.0


def run(port: int, requests: list[bytes], connections: int, seconds: float, rate: float | None = None) -> dict:
    """Sends `requests` in turn, one at a time on each connection.

    Args:
        port: of the server on 127.0.0.1.
        requests: whole HTTP requests.
        connections: number of connections.
        seconds: duration of the measurement.
        rate: requests per second; None sends the next request after the answer to the last one. With a rate, latencies
            start when a request is due, so that a stall shows in all delayed requests.

    Returns:
        "count", "errors", "seconds", "rate", and "p50", "p99" in seconds, "cpu" in seconds of this process.
    """
    sockets = {}
    epoll = select.epoll()
    for _ in range(connections):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        epoll.register(connection.fileno(), select.EPOLLIN)
        sockets[connection.fileno()] = connection
    clock = time.perf_counter
    idle = list(sockets)
    due_at: dict[int, float] = {}
    partial: dict[int, bytes] = {}
    latencies: list[float] = []
    errors = sent = 0
    cpu = time.process_time()
    start = last_answer = clock()
    end = start + seconds
    while True:
        now = clock()
        while idle and now < end:
            due = now if rate is None else start + sent / rate
            if due > now:
                break
            descriptor = idle.pop()
            due_at[descriptor] = due
            sockets[descriptor].sendall(requests[sent % len(requests)])
            sent += 1
        if now >= end and not due_at:
            break
        wait = _SILENCE_SECONDS if rate is None or now >= end else max(0.0, start + sent / rate - now)
        for descriptor, _ in epoll.poll(min(wait, max(0.0, end - now) or _SILENCE_SECONDS)):
            answer = sockets[descriptor].recv(_RECEIVE_BYTES)
            if descriptor in partial or not is_complete(answer):
                answer = partial.pop(descriptor, b"") + answer
                if not is_complete(answer):
                    partial[descriptor] = answer
                    continue
            last_answer = clock()
            latencies.append(last_answer - due_at.pop(descriptor))
            errors += not answer.startswith(b"HTTP/1.1 200")
            if rate is None and last_answer < end:
                due_at[descriptor] = last_answer
                sockets[descriptor].sendall(requests[sent % len(requests)])
                sent += 1
            else:
                idle.append(descriptor)
        if clock() - last_answer > _SILENCE_SECONDS:
            raise TimeoutError(f"The server did not answer for {_SILENCE_SECONDS:g} seconds.")
    elapsed = last_answer - start
    for connection in sockets.values():
        connection.close()
    epoll.close()
    latencies.sort()
    return {
        "count": len(latencies),
        "errors": errors,
        "seconds": elapsed,
        "rate": len(latencies) / elapsed,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
        "cpu": time.process_time() - cpu,
    }


def is_complete(answer: bytes) -> bool:
    """Whether the bytes are a complete HTTP answer with a Content-Length.

    Raises:
        ConnectionError: if the server closed the connection.
    """
    if not answer:
        raise ConnectionError("The server closed a connection.")
    end_of_headers = answer.find(b"\r\n\r\n")
    if end_of_headers < 0:
        return False
    length_at = answer.find(b"content-length: ") + 16
    return len(answer) >= end_of_headers + 4 + int(answer[length_at : answer.index(b"\r", length_at)])


def run_from_file(path: str) -> None:
    """Reads the arguments of `run` from a JSON file and prints its result as JSON."""
    arguments = json.loads(Path(path).read_text(encoding="utf-8"))
    arguments["requests"] = [request.encode("latin-1") for request in arguments["requests"]]
    json.dump(run(**arguments), sys.stdout)
