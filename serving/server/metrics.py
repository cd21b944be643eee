"""Counts and times of predictions, under the names that TF Serving's Prometheus page has for them.

Plain numbers that only the event loop changes: a request costs two additions, and all else is done when the page is
asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from prometheus_client.core import CollectorRegistry, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest

# Microseconds, as TF Serving counts them.
_LATENCY_BOUNDS = tuple(10 * 1.8**power for power in range(30))
_BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class _Histogram:
    def __init__(self, bounds: Sequence[float]):
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        cumulative, running = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            cumulative.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(running)))
        return cumulative


class Metrics:
    """What the server counts."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._latency: defaultdict[tuple[str, str], _Histogram] = defaultdict(lambda: _Histogram(_LATENCY_BOUNDS))
        self._batches = _Histogram(_BATCH_BOUNDS)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def observe_request(self, model: str, entrypoint: str, status: str, seconds: float) -> None:
        """Counts one request to predict.

        Args:
            model: a name that the store is configured with; others are counted as "".
            entrypoint: "REST" or "GRPC".
            status: a canonical code, "OK" among them.
            seconds: from its arrival to its answer.
        """
        self._requests[model, entrypoint, status] += 1
        self._latency[model, entrypoint].observe(1e6 * seconds)

    def observe_batch(self, rows: int) -> None:
        """Counts one run of a model."""
        self._batches.observe(rows)

    def page(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client, when the page is made."""
        # Untyped, because its counters get a suffix that TF Serving's names do not have.
        requests = Metric(":tensorflow:serving:request_count", "The total number of requests to predict.", "unknown")
        for (model, entrypoint, status), count in self._requests.items():
            labels = {"model_name": model, "entrypoint": entrypoint, "status": status}
            requests.add_sample(requests.name, labels, count)
        yield requests
        latency = HistogramMetricFamily(
            ":tensorflow:serving:request_latency",
            "Distribution of wall time (in microseconds) for requests to predict.",
            labels=["model_name", "API", "entrypoint"],
        )
        for (model, entrypoint), histogram in self._latency.items():
            latency.add_metric([model, "predict", entrypoint], histogram.buckets(), histogram.total)
        yield latency
        batches = HistogramMetricFamily(
            ":tensorflow:serving:batching_session:processed_batch_size", "Distribution of the rows of a batch."
        )
        batches.add_metric([], self._batches.buckets(), self._batches.total)
        yield batches
