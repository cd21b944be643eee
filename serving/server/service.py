"""What REST and gRPC share: models, batching, metrics, and descriptions of models."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Mapping

from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from serving.errors import CODE_NUMBER, ServingError
from serving.server.batcher import Batcher, Outputs
from serving.server.model_store import ModelStore
from serving.server.servable import Column, Runner
from serving.server.settings import Settings
from serving.telemetry import Metrics

SIGNATURE_DEF = "signature_def"
_BATCH_SIZE_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Service:
    """The core of the model server. Create it inside the running event loop.

    Args:
        settings: limits and batching.
        store: the models.
    """

    def __init__(self, settings: Settings, store: ModelStore):
        self.settings = settings
        self.store = store
        # The names are TF Serving's.
        self.metrics = Metrics(
            ":tensorflow:serving:request_count",
            ":tensorflow:serving:request_latency",
            ("model_name", "entrypoint"),
            {"API": "predict"},
        )
        batch_sizes = self.metrics.add_histogram(
            ":tensorflow:serving:batching_session:processed_batch_size", "Distribution of batch sizes.",
            _BATCH_SIZE_BOUNDS,
        )  # fmt: skip
        self._batcher = Batcher(
            settings.max_batch_size,
            settings.batch_timeout,
            settings.max_enqueued_rows,
            settings.num_batch_threads or len(os.sched_getaffinity(0)),
            batch_sizes.observe,
        )

    def predict(
        self, runner: Runner, inputs: Mapping[str, Column], rows: int, timeout: float | None = None
    ) -> Awaitable[Outputs]:
        """Runs a signature on the rows of one request, batched with those of other requests.

        Args:
            runner: the signature.
            inputs: columns by alias, checked by the runner.
            rows: the number of rows.
            timeout: the client's time limit in seconds, if it has one.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if the queue is full, DEADLINE_EXCEEDED, or the error of the model.
        """
        limit = self.settings.request_timeout if timeout is None else min(timeout, self.settings.request_timeout)
        return self._batcher.run(runner, inputs, rows, limit)

    def count(self, model: str, entrypoint: str, error: ServingError | None, seconds: float) -> None:
        """Counts a prediction in the metrics.

        Args:
            model: the requested name; one that is not configured is counted as "", to bound the number of labels.
            entrypoint: "REST" or "GRPC".
            error: None for success.
            seconds: time from the arrival of the request to its answer.
        """
        known = model if self.store.is_configured(model) else ""
        self.metrics.observe_request((known, entrypoint), "OK" if error is None else error.code, seconds)

    def status(self, name: str, version: int | None, label: str | None) -> get_model_status_pb2.GetModelStatusResponse:
        """The states of a model's versions.

        Raises:
            ServingError: NOT_FOUND or INVALID_ARGUMENT.
        """
        response = get_model_status_pb2.GetModelStatusResponse()
        for number, status in self.store.statuses(name, version, label).items():
            entry = response.model_version_status.add(version=number, state=status.state)
            entry.status.error_code = CODE_NUMBER[status.error_code]
            entry.status.error_message = status.error_message
        return response

    def metadata(
        self, name: str, version: int | None, label: str | None
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Name, version and signatures of a model.

        Raises:
            ServingError: NOT_FOUND, INVALID_ARGUMENT or UNAVAILABLE.
        """
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        signatures = get_model_metadata_pb2.SignatureDefMap()
        with self.store.acquire(name, version, label) as servable:
            response.model_spec.name = servable.name
            response.model_spec.version.value = servable.version
            for key, signature in servable.signature_defs.items():
                signatures.signature_def[key].CopyFrom(signature)
        response.metadata[SIGNATURE_DEF].Pack(signatures)
        return response

    def close(self) -> None:
        """Waits for running batches."""
        self._batcher.close()
