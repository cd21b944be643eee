"""Starts and stops the model server: the model store, REST and gRPC over one `Service`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

import grpc

from serving.server.grpc_service import make_grpc_server
from serving.server.model_store import ModelStore
from serving.server.rest import make_rest_app
from serving.server.service import Service
from serving.server.settings import Settings
from serving.web_server import bind, serving

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Addresses:
    """The ports of a running server; None if the interface is off."""

    rest_port: int | None
    grpc_port: int | None


@contextlib.asynccontextmanager
async def running_server(settings: Settings) -> AsyncIterator[Addresses]:
    """A server that answers requests inside the block, and finishes running ones afterwards.

    Raises:
        OSError: if a port is in use.
        ValueError: if the configuration file is not valid.
    """
    async with contextlib.AsyncExitStack() as stack:
        listener = None if settings.rest_port is None else stack.enter_context(bind(settings, settings.rest_port))
        rest_port = None if listener is None else listener.getsockname()[1]
        store = ModelStore(settings)
        stack.push_async_callback(asyncio.to_thread, store.stop)
        await asyncio.to_thread(store.start)
        service = Service(settings, store)
        stack.push_async_callback(asyncio.to_thread, service.close)
        app = make_rest_app(service)
        grpc_server = None if settings.grpc_port is None else make_grpc_server(service, app)
        also_stop = [] if grpc_server is None else [partial(grpc_server.stop, settings.shutdown_timeout)]
        for stop in also_stop:
            # If REST cannot start, a running gRPC server would keep the process alive. A second stop does nothing.
            stack.push_async_callback(stop)
        grpc_port = None if grpc_server is None else await _start(grpc_server, settings)
        await stack.enter_async_context(serving(app, listener, also_stop))
        addresses = Addresses(rest_port, grpc_port)
        logger.info("listening", extra={"host": settings.host, **vars(addresses)})
        yield addresses
    logger.info("stopped")


async def _start(server: grpc.aio.Server, settings: Settings) -> int:
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
    return port
