import json
import logging

from serving.server.logs import JsonFormatter


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
