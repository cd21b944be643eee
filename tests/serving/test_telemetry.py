"""Log lines, and which requests are counted under which labels."""

import asyncio
import json
import logging
import re

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.apis import get_model_status_pb2, predict_pb2

from serving.server.grpc_service import ModelService, PredictionService
from serving.telemetry import JsonFormatter
from tests.serving.http_exchange import PATIENCE, PREDICT, ask, running_service

GOOD = {"signature_name": "hash_caption", "instances": ["a red cat"]}
ELSEWHERE = "/v1/models/made-up-{}:predict"


def counts(service):
    """(model_name, entrypoint, status) -> number of requests."""
    families = text_string_to_metric_families(service.metrics.page().decode())
    samples = [sample for family in families for sample in family.samples]
    return {
        (sample.labels["model_name"], sample.labels["entrypoint"], sample.labels["status"]): sample.value
        for sample in samples
        if sample.name == ":tensorflow:serving:request_count"
    }


def counted(store, *requests, **settings):
    """What is counted after some REST requests, each the arguments of `ask`."""

    async def main():
        async with running_service(store, **settings) as service:
            for request in requests:
                await ask(service, *request)
            latencies = re.findall(r"request_latency_count\{(.*)\} (.*)", service.metrics.page().decode())
            return counts(service), latencies

    return asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_predictions_are_counted_by_model_and_status(store):
    requests, latencies = counted(
        store, ("POST", PREDICT, GOOD), ("POST", PREDICT, GOOD), ("POST", PREDICT, b"{"),
        ("POST", "/v1/models/cmimh/versions/9:predict", GOOD),
    )  # fmt: skip
    assert requests == {
        ("cmimh", "REST", "OK"): 2, ("cmimh", "REST", "INVALID_ARGUMENT"): 1, ("cmimh", "REST", "NOT_FOUND"): 1,
    }  # fmt: skip
    assert latencies == [('API="predict",entrypoint="REST",model_name="cmimh"', "4.0")]


def test_nothing_but_predictions_is_counted(store):
    others = ["/v1/models/cmimh", "/v1/models/cmimh/metadata", "/readyz", "/monitoring/prometheus/metrics", "/nowhere"]
    requests, latencies = counted(store, *(("GET", path) for path in others), ("POST", "/v1/models/cmimh:classify", {}))
    assert (requests, latencies) == ({}, [])


def test_names_that_clients_make_up_are_no_labels(store):
    wrong = [("POST", ELSEWHERE.format(number), body) for number, body in enumerate((b"{", GOOD, b""))]
    assert counted(store, *wrong)[0] == {("", "REST", "INVALID_ARGUMENT"): 2, ("", "REST", "NOT_FOUND"): 1}
    assert counted(store, *wrong, token="secret")[0] == {("", "REST", "UNAUTHENTICATED"): 3}


class Context:
    """As much of a gRPC call as the services look at."""

    def invocation_metadata(self):
        return ()

    def time_remaining(self):
        return None

    async def abort(self, code, details):
        raise grpc.RpcError(details)


def test_grpc_is_counted_likewise(store):
    async def main():
        async with running_service(store, token="secret") as service:
            for name in ("made-up-1", "made-up-2", "cmimh"):
                request = predict_pb2.PredictRequest()
                request.model_spec.name = name
                with pytest.raises(grpc.RpcError, match="bearer token"):
                    await PredictionService(service.service, service.app.guard).Predict(request, Context())
            request = get_model_status_pb2.GetModelStatusRequest()
            with pytest.raises(grpc.RpcError, match="bearer token"):
                await ModelService(service.service, service.app.guard).GetModelStatus(request, Context())
            return counts(service)

    assert asyncio.run(main()) == {("", "GRPC", "UNAUTHENTICATED"): 2, ("cmimh", "GRPC", "UNAUTHENTICATED"): 1}


def test_a_server_that_is_not_ready_is_no_success_in_the_log(store, caplog):
    async def main():
        async with running_service(store) as service:
            service.stopping = True
            assert (await ask(service, "GET", "/readyz", b"", {"X-Request-Id": "probe"})).status == 503

    with caplog.at_level("INFO"):
        asyncio.run(main())
    (record,) = [record for record in caplog.records if getattr(record, "request_id", None) == "probe"]
    assert (record.status, record.error) == ("UNAVAILABLE", "The server is not ready.")


def test_a_line_is_one_json_object_with_what_the_call_added():
    record = logging.makeLogRecord({"name": "serving", "levelname": "INFO", "msg": "request %d", "args": (7,)})
    record.request_id, record.ms = "mine\n-7", 1.5
    line = JsonFormatter().format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert entry.pop("time")
    assert entry == {
        "level": "info", "logger": "serving", "message": "request 7", "request_id": "mine\n-7", "ms": 1.5,
    }  # fmt: skip


def test_a_traceback_is_kept():
    try:
        raise ValueError("on purpose")
    except ValueError as error:
        record = logging.makeLogRecord({"exc_info": (ValueError, error, error.__traceback__)})
    assert "ValueError: on purpose" in json.loads(JsonFormatter().format(record))["traceback"]
