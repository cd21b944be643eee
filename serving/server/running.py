"""Starts REST and gRPC over one service, and ends them without losing a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import cast

import grpc
import uvicorn
from uvicorn.server import ServerState

from serving.server.grpc_service import make_grpc_server
from serving.server.http_connection import HttpConnection, watch
from serving.server.model_store import ModelStore
from serving.server.rest import RestApplication
from serving.server.service import Service
from serving.server.settings import Settings

logger = logging.getLogger(__name__)

_BACKLOG = 1024


@dataclass(frozen=True)
class Addresses:
    """Where the server listens; a port is None if that interface is off."""

    rest_port: int | None
    grpc_port: int | None


class _UvicornServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals are ours: they end both interfaces.
        yield


async def serve_until_signal(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then lets running requests end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_server(settings):
        await stop.wait()
        logger.info("stopping; running requests may end")


@contextlib.asynccontextmanager
async def running_server(settings: Settings) -> AsyncIterator[Addresses]:
    """A server that listens inside the block.

    Raises:
        OSError: if a port is taken.
        ValueError: if the configuration file is not sound.
    """
    store = ModelStore(settings)
    sockets = [] if settings.rest_port is None else [_bind(settings.host, settings.rest_port)]
    try:
        await asyncio.to_thread(store.start)
        service = Service(settings, store)
        grpc_server, grpc_port = await _start_grpc(service)
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    rest = _UvicornServer(_uvicorn_config(service))
    rest_task = asyncio.create_task(rest.serve(sockets=sockets)) if sockets else None
    watching = asyncio.create_task(watch(cast("set[HttpConnection]", rest.server_state.connections)))
    try:
        while rest_task is not None and not rest.started:
            if rest_task.done():
                rest_task.result()
                raise OSError("The REST interface could not be started.")
            await asyncio.sleep(0.005)
        addresses = Addresses(sockets[0].getsockname()[1] if sockets else None, grpc_port)
        logger.info("listening", extra={"host": settings.host, **vars(addresses)})
        yield addresses
    finally:
        service.stopping = True
        await asyncio.sleep(settings.shutdown_delay)
        rest.should_exit = True
        ends = [] if rest_task is None else [rest_task]
        if grpc_server is not None:
            ends.append(asyncio.ensure_future(grpc_server.stop(settings.shutdown_timeout)))
        await asyncio.gather(*ends)
        watching.cancel()
        await asyncio.to_thread(service.close)
        await asyncio.to_thread(store.stop)
        logger.info("stopped")


def _uvicorn_config(service: Service) -> uvicorn.Config:
    settings = service.settings
    application = RestApplication(service)

    def connect(server_state: ServerState, **_: object) -> HttpConnection:
        return HttpConnection(
            application,
            settings.max_body_bytes,
            settings.request_timeout,
            cast("set[HttpConnection]", server_state.connections),
        )

    return uvicorn.Config(
        # Only for its log: requests go to the application through `http`.
        RestApplication,
        interface="asgi3",
        http=cast("type[HttpConnection]", connect),
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_timeout)),
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(f"`rest_port` must be free. Received: {host}:{port} ({error.strerror}).") from error
    return bound


async def _start_grpc(service: Service) -> tuple[grpc.aio.Server | None, int | None]:
    settings = service.settings
    if settings.grpc_port is None:
        return None, None
    server = make_grpc_server(service)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    try:
        if settings.tls_certificate is None or settings.tls_key is None:
            port = server.add_insecure_port(address)
        else:
            pair = (settings.tls_key.read_bytes(), settings.tls_certificate.read_bytes())
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise OSError(f"`grpc_port` must be free. Received: {address} ({error}).") from error
    await server.start()
    return server, port
