import json

import numpy as np
import pytest

from serving.server.batcher import BatchOutputs, Outputs
from serving.server.json_codec import encode_response

BITS = np.array([[0, 1], [1, 1]], np.int32)


@pytest.mark.parametrize(
    ("outputs", "row_format", "expected"),
    [
        # A single output comes without its name, in rows and in columns.
        ({"bits": BITS}, True, {"predictions": [[0, 1], [1, 1]]}),
        ({"bits": BITS}, False, {"outputs": [[0, 1], [1, 1]]}),
        (
            {"bits": BITS, "code_bytes": [b"\x02", b"\x03"]},
            True,
            {"predictions": [{"bits": [0, 1], "code_bytes": {"b64": "Ag=="}},
                             {"bits": [1, 1], "code_bytes": {"b64": "Aw=="}}]},
        ),
        (
            {"bits": BITS, "code_bytes": [b"\x02", b"\x03"]},
            False,
            {"outputs": {"bits": [[0, 1], [1, 1]], "code_bytes": [{"b64": "Ag=="}, {"b64": "Aw=="}]}},
        ),
        # Only names that end in _bytes are base64.
        ({"name": [b"caf\xc3\xa9"]}, True, {"predictions": ["caf\u00e9"]}),
        # Not contiguous, and strings with more than one dimension.
        ({"bits": BITS.T}, True, {"predictions": [[0, 1], [1, 1]]}),
        ({"a_bytes": np.array([[b"\x02"]], object)}, True, {"predictions": [[{"b64": "Ag=="}]]}),
    ],
)  # fmt: skip
def test_rows_and_columns(outputs, row_format, expected):
    rows = len(next(iter(outputs.values())))
    answer = encode_response(Outputs(BatchOutputs(outputs), 0, rows), row_format)
    assert json.loads(answer) == expected


def test_a_request_gets_its_rows_of_the_batch():
    batch = BatchOutputs({"bits": BITS, "100%": np.array([0.5, 0.25])})
    first, second = Outputs(batch, 0, 1), Outputs(batch, 1, 2)
    assert json.loads(encode_response(second, True)) == {"predictions": [{"bits": [1, 1], "100%": 0.25}]}
    assert json.loads(encode_response(first, True)) == {"predictions": [{"bits": [0, 1], "100%": 0.5}]}
    assert json.loads(encode_response(second, False)) == {"outputs": {"bits": [[1, 1]], "100%": [0.25]}}
