"""Settings and flags that all services share, and the server around a `WebApp`: start, signals, graceful shutdown.

The server is Granian inside this process's event loop, so that HTTP, gRPC and the model share one process. Nothing
heavy is imported before a service starts: a wrong flag is reported at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving.web_app import WebApp

logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "CMIMH_SERVING_TOKEN"
MAX_HEADER_BYTES = 64 << 10
_BACKLOG = 1024
_SWITCH_SECONDS = 0.0005
_GARBAGE_THRESHOLD = 50_000


@dataclass(frozen=True, kw_only=True)
class WebSettings:
    """Settings of any service.

    Attributes:
        host: address to listen on. Other machines can only connect if it is not 127.0.0.1.
        max_body_bytes: maximum size of a request body, before and after decompression (413).
        max_connections: maximum number of open HTTP connections; further ones wait to be accepted.
        request_timeout: seconds for a request to arrive (408), to be answered (504), and for a client to accept data.
        shutdown_timeout: seconds for running requests to finish after SIGTERM.
        shutdown_delay: seconds from SIGTERM, when readiness checks start to fail, to the end of accepting requests.
        token: bearer token that requests must carry, or None.
        tls_certificate, tls_key: PEM files; both or neither.
        access_log: whether every request is logged; errors always are.
        log_level: minimum level of log messages.
    """

    host: str = "127.0.0.1"
    max_body_bytes: int = 16 << 20
    max_connections: int = 1024
    request_timeout: float = 30.0
    shutdown_timeout: float = 30.0
    shutdown_delay: float = 0.0
    token: str | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    access_log: bool = False
    log_level: str = "info"

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError(
                "`tls_certificate` and `tls_key` must be given together. "
                f"Received: tls_certificate={self.tls_certificate}, tls_key={self.tls_key}."
            )
        if self.token is not None and not self.token:
            raise ValueError("`token` must not be empty. Received: ''.")
        if self.tls_certificate is not None and self.tls_key is not None:
            _check_tls(self.tls_certificate, self.tls_key)
        self.check_at_least(1, "max_body_bytes", "max_connections")
        self.check_at_least(0, "shutdown_delay")
        for name in ("request_timeout", "shutdown_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={getattr(self, name)}.")

    def check_at_least(self, minimum: float, *names: str) -> None:
        """Raises a ValueError if one of the named settings is below `minimum`."""
        for name in names:
            if not getattr(self, name) >= minimum:
                raise ValueError(f"`{name}` must be at least {minimum}. Received: {name}={getattr(self, name)}.")


def _check_tls(certificate: Path, key: Path) -> None:
    import ssl

    for file in (certificate, key):
        # Here, and not by `ssl`, a missing file is named.
        file.open("rb").close()
    try:
        # With a password, `ssl` does not ask for one if the key is encrypted.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise ValueError(
            "`tls_certificate` and `tls_key` must be PEM files of a certificate and its key, without a password. "
            f"Received: tls_certificate={certificate}, tls_key={key} ({error.reason or error})."
        ) from error


def add_web_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for `WebSettings`; `web_flags` reads them."""
    add = parser.add_argument_group("server").add_argument
    default = WebSettings
    add("--host", default=default.host, metavar="ADDRESS", help="address to listen on (%(default)s)")
    add("--max-body-bytes", type=int, default=default.max_body_bytes, metavar="N",
        help="size of a request body, also after decompression (%(default)s)")  # fmt: skip
    add("--max-connections", type=int, default=default.max_connections, metavar="N",
        help="connections at the same time; further ones wait (%(default)s)")  # fmt: skip
    add("--request-timeout", type=float, default=default.request_timeout, metavar="S",
        help="seconds for a request to arrive, and again for its answer (%(default)s)")  # fmt: skip
    add("--shutdown-timeout", type=float, default=default.shutdown_timeout, metavar="S",
        help="seconds for running requests after SIGTERM (%(default)s)")  # fmt: skip
    add("--shutdown-delay", type=float, default=default.shutdown_delay, metavar="S",
        help="seconds between failing readiness checks and shutdown (%(default)s)")  # fmt: skip
    add("--token-file", type=Path, metavar="FILE", help=f"file with the bearer token (default: ${TOKEN_VARIABLE})")
    add("--tls-certificate", type=Path, metavar="FILE", help="PEM file; needs --tls-key")
    add("--tls-key", type=Path, metavar="FILE", help="PEM file; needs --tls-certificate")
    add("--access-log", action="store_true", help="log every request, not only errors")
    add("--log-level", choices=("debug", "info", "warning", "error"), default=default.log_level,
        help="minimum level of log lines (%(default)s)")  # fmt: skip


def web_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Replaces the token file among parsed flags by the token, and checks that the files exist.

    Raises:
        OSError: if a file cannot be read.
    """
    flags = dict(flags)
    token_file = flags.pop("token_file")
    flags["token"] = os.environ.get(TOKEN_VARIABLE)
    if token_file is not None:
        flags["token"] = token_file.read_text(encoding="utf-8").strip()
    for name in ("tls_certificate", "tls_key"):
        if flags[name] is not None:
            flags[name].open("rb").close()
    return flags


def run_service(start: Callable[[], contextlib.AbstractAsyncContextManager[Any]], log_level: str) -> None:
    """Runs a service until SIGTERM or SIGINT; ends the program with one sentence if it cannot start.

    Args:
        start: imports the service, and returns the context manager inside which it runs.
        log_level: minimum level of log messages.
    """
    import uvloop

    from serving.telemetry import configure_logs

    configure_logs(log_level)
    # Libraries write to standard error as they are imported, but a log must consist of JSON lines.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    service = start()
    # TensorFlow keeps many long-lived objects, and requests leave no cycles: collect rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD)
    # The thread that starts a batch must not wait 5 ms for the thread that parses requests.
    sys.setswitchinterval(_SWITCH_SECONDS)

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with service:
            await stop.wait()
            logger.info("shutting down; running requests may finish")

    try:
        uvloop.run(main())
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def bind(settings: WebSettings, port: int) -> socket.socket:
    """Reserves a port for `serving`; 0 chooses a free one. Bind before slow work, so that a used port is found early.

    Raises:
        OSError: if the port is in use.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these. The second one closes connections whose client reads nothing.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * settings.request_timeout))
        listener.bind((settings.host, port))
    except OSError as error:
        listener.close()
        message = f"The HTTP port must be free. Received: {settings.host}:{port} ({error.strerror})."
        raise OSError(message) from error
    return listener


@contextlib.asynccontextmanager
async def serving(
    app: WebApp, listener: socket.socket | None, also_stop: Sequence[Callable[[], Coroutine[Any, Any, Any]]] = ()
) -> AsyncIterator[None]:
    """Answers requests inside the block; afterwards lets running requests finish.

    Args:
        app: the application.
        listener: from `bind`; None serves no HTTP.
        also_stop: stop other interfaces of the service, such as gRPC, at the same time as HTTP.
    """
    settings = app.settings
    server = task = None
    if listener is not None:
        listener.listen(_BACKLOG)
        server = _granian(app, listener)
        task = asyncio.create_task(server.serve())
        task.add_done_callback(lambda ended: _report_end(ended, app))
    try:
        yield
    finally:
        app.stopping = True
        await asyncio.sleep(settings.shutdown_delay)
        ends = [asyncio.ensure_future(stop()) for stop in also_stop]
        if server is not None and task is not None:
            server.stop()
            ends.append(task)
        if ends and (await asyncio.wait(ends, timeout=settings.shutdown_timeout))[1]:
            logger.error("running requests did not finish in time")


def _report_end(task: asyncio.Task[None], app: WebApp) -> None:
    if not app.stopping and not task.cancelled():
        app.stopping = True
        logger.critical("the HTTP server ended unexpectedly", exc_info=task.exception())


def _granian(app: WebApp, listener: socket.socket) -> Any:
    from granian._granian import SocketHolder
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.log import LogLevels
    from granian.server.embed import Server

    # Its type stub lacks two of the arguments.
    make_holder: Any = SocketHolder

    class BoundServer(Server):
        def _init_shared_socket(self) -> None:
            # Granian's own sockets share their port with any other server, and do not report a port chosen for 0.
            self._shd = make_holder(listener.detach(), False, self.backlog)

    settings = app.settings
    return BoundServer(
        app,
        address=settings.host,
        port=listener.getsockname()[1],
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(
            header_read_timeout=max(1, round(1000 * settings.request_timeout)), max_buffer_size=MAX_HEADER_BYTES
        ),
        websockets=False,
        backlog=_BACKLOG,
        backpressure=settings.max_connections,
        # Its messages go to the log of this process.
        log_level=LogLevels.error,
        log_dictconfig={"formatters": {}, "handlers": {}, "loggers": {"_granian": {"propagate": True}}},
        ssl_cert=settings.tls_certificate,
        ssl_key=settings.tls_key,
    )
