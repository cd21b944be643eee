"""What REST and gRPC share: models, batching, limits, metrics and the token."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import os
import secrets
from collections.abc import Mapping

from serving.server.batcher import Batcher, Deliver, Outputs, Task
from serving.server.errors import ServingError
from serving.server.metrics import Metrics
from serving.server.model_store import ModelStore
from serving.server.servable import Column, Runner
from serving.server.settings import Settings

logger = logging.getLogger(__name__)

_MAX_ID_LENGTH = 128


class Service:
    """The heart of the server. Make it inside the running event loop.

    Args:
        settings: limits and so on.
        store: the models.
    """

    def __init__(self, settings: Settings, store: ModelStore):
        self.settings = settings
        self.store = store
        self.metrics = Metrics()
        self.stopping = False
        self._batcher = Batcher(
            settings.max_batch_size,
            settings.batch_timeout,
            settings.max_enqueued_rows,
            settings.num_batch_threads or len(os.sched_getaffinity(0)),
            self.metrics.observe_batch,
        )
        self._authorization = None if settings.token is None else f"Bearer {settings.token}".encode()
        self._id_prefix = secrets.token_hex(6)
        self._id_numbers = itertools.count(1)

    def submit(self, runner: Runner, inputs: Mapping[str, Column], rows: int, deliver: Deliver) -> Task:
        """Runs a signature on the rows of one request, together with those of others.

        Args:
            runner: the signature.
            inputs: by alias, checked by the runner.
            rows: their number.
            deliver: takes the outputs, or a ServingError: DEADLINE_EXCEEDED, or what the model said.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if the queue is full.
        """
        return self._batcher.submit(runner, inputs, rows, self.settings.request_timeout, deliver)

    async def predict(
        self, runner: Runner, inputs: Mapping[str, Column], rows: int, timeout: float | None = None
    ) -> Outputs:
        """The same as a coroutine; `timeout` is the client's limit, where it has one below the server's.

        Raises:
            ServingError: whatever `submit` delivers or raises.
        """
        future: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()

        def deliver(result: Outputs | ServingError) -> None:
            if future.cancelled():
                return
            if isinstance(result, ServingError):
                future.set_exception(result)
            else:
                future.set_result(result)

        limit = self.settings.request_timeout if timeout is None else min(timeout, self.settings.request_timeout)
        task = self._batcher.submit(runner, inputs, rows, limit, deliver)
        try:
            return await future
        finally:
            task.cancel()

    def request_id(self, received: bytes | None) -> str:
        """The client's id of the request if it is a sane one, else a new one."""
        if received and len(received) <= _MAX_ID_LENGTH and received.isascii():
            text = received.decode("ascii")
            if text.isprintable():
                return text
        return f"{self._id_prefix}-{next(self._id_numbers)}"

    def check_token(self, authorization: bytes | None) -> None:
        """Refuses a request without the bearer token, if one is set.

        Raises:
            ServingError: UNAUTHENTICATED.
        """
        if self._authorization is None:
            return
        if authorization is None or not hmac.compare_digest(authorization, self._authorization):
            raise ServingError("UNAUTHENTICATED", "A valid bearer token must be sent in the Authorization header.")

    def is_ready(self) -> bool:
        """Whether requests should be sent here."""
        return not self.stopping and self.store.is_ready()

    def finish(
        self,
        request_id: str,
        model: str | None,
        entrypoint: str,
        what: tuple[str, bytes],
        error: ServingError | None,
        seconds: float,
    ) -> None:
        """Logs an answered request, and counts it if it was to predict.

        Args:
            request_id: of the client, or made here.
            model: the name that a prediction was asked of, whether there is such a model or not; None for what is no
                prediction.
            entrypoint: "REST" or "GRPC".
            what: its method and its address.
            error: None if there was none.
            seconds: from its arrival to its answer.
        """
        status = "OK" if error is None else error.code
        if model is not None:
            # Names that clients make up must not become labels without end.
            known = model if self.store.is_configured(model) else ""
            self.metrics.observe_request(known, entrypoint, status, seconds)
        if error is not None:
            level = logging.ERROR if error.http_status == 500 else logging.INFO
        elif self.settings.access_log:
            level = logging.INFO
        else:
            return
        request = f"{what[0]} {what[1][:_MAX_ID_LENGTH].decode('ascii', 'replace')}"
        details = {"request_id": request_id, "request": request, "status": status, "ms": round(1000 * seconds, 2)}
        if error is not None:
            details["error"] = error.message
        logger.log(level, "request", extra=details)

    def close(self) -> None:
        """Waits for running batches."""
        self._batcher.close()
