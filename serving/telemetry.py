"""What operators see of a service: JSON log lines and Prometheus metrics."""

from __future__ import annotations

import logging
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from prometheus_client.core import CollectorRegistry, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Microseconds, the unit of TF Serving.
_LATENCY_BOUNDS = tuple(10 * 1.8**power for power in range(30))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields of the call's `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update({key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode("utf-8")


def configure_logs(level: str) -> None:
    """Writes all logs of this process to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.root.handlers = [handler]
    logging.root.setLevel(level.upper())
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


class Histogram:
    """Counts of values by bucket.

    Args:
        bounds: upper bounds of the buckets, ascending; a last bucket without a bound is added.
    """

    def __init__(self, bounds: Sequence[float]):
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, each with its upper bound."""
        cumulative, running = [], 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            running += count
            cumulative.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(running)))
        return cumulative


class Metrics:
    """Counts and latencies of requests, and further histograms, as a Prometheus page.

    The counters are plain numbers that only the event loop changes, so counting a request costs two additions. The
    page is built when it is requested.

    Args:
        count_name: name of the metric that counts requests.
        latency_name: name of the histogram of latencies in microseconds.
        labels: names of the labels of both; the count also has the label `status`.
        constant_labels: labels of the latency that never change.
    """

    def __init__(
        self,
        count_name: str,
        latency_name: str,
        labels: Sequence[str],
        constant_labels: dict[str, str] | None = None,
    ):
        self._count_name, self._latency_name = count_name, latency_name
        self._labels, self._constant_labels = tuple(labels), constant_labels or {}
        self._requests: Counter[tuple[tuple[str, ...], str]] = Counter()
        self._latency: defaultdict[tuple[str, ...], Histogram] = defaultdict(lambda: Histogram(_LATENCY_BOUNDS))
        self._histograms: dict[str, tuple[str, Histogram]] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def observe_request(self, labels: tuple[str, ...], status: str, seconds: float) -> None:
        """Counts one request.

        Args:
            labels: values of the labels. Never pass text of a client: each new value stays in memory.
            status: a canonical code, "OK" among them.
            seconds: time from the arrival of the request to its answer.
        """
        self._requests[labels, status] += 1
        self._latency[labels].observe(1e6 * seconds)

    def add_histogram(self, name: str, description: str, bounds: Sequence[float]) -> Histogram:
        """Adds a histogram without labels to the page."""
        histogram = Histogram(bounds)
        self._histograms[name] = (description, histogram)
        return histogram

    def page(self) -> bytes:
        """The text for Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client to build the page."""
        # A counter of prometheus_client would get the suffix _total, which TF Serving's name does not have.
        requests = Metric(self._count_name, "The total number of requests.", "unknown")
        for (labels, status), count in self._requests.items():
            values = dict(zip(self._labels, labels, strict=True))
            requests.add_sample(self._count_name, {**values, "status": status}, count)
        yield requests
        latency = HistogramMetricFamily(
            self._latency_name,
            "Distribution of wall time (in microseconds) of requests.",
            labels=[*self._labels, *self._constant_labels],
        )
        for labels, histogram in self._latency.items():
            latency.add_metric([*labels, *self._constant_labels.values()], histogram.buckets(), histogram.total)
        yield latency
        for name, (description, histogram) in self._histograms.items():
            family = HistogramMetricFamily(name, description)
            family.add_metric([], histogram.buckets(), histogram.total)
            yield family
