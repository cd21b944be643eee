"""Random requests over REST and gRPC: none makes the server fail, and good ones are answered in between."""

import base64
import os

from serving.server.settings import Settings
from tests.serving.fuzzing import GOOD_REQUEST, fuzz, resident_megabytes
from tests.serving.http_exchange import exchange

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "3000"))


def test_random_requests_get_answers_below_500_and_good_ones_their_codes(exported, serve):
    expected = exported.caption_codes(["a red cat"])[0].tobytes()
    settings = Settings(
        model_base=exported.base, rest_port=0, grpc_port=0, max_body_bytes=1 << 18, request_timeout=60,
        shutdown_timeout=5,
    )  # fmt: skip
    checked = []
    with serve(settings) as addresses:

        def check_good(done):
            answer = exchange(addresses.rest_port, GOOD_REQUEST)
            assert base64.b64decode(answer.json["predictions"][0]["code_bytes"]["b64"]) == expected
            checked.append(done)
            print(f"{done} requests, {resident_megabytes()} MB", flush=True)

        answers = fuzz(addresses.rest_port, addresses.grpc_port, REQUESTS, seed=0, report=check_good)
    print(dict(sorted(answers.items())))
    assert checked
    assert sum(answers.values()) >= REQUESTS
    # All kinds of answers occur, so the requests are neither all broken nor all the same.
    expected_kinds = {"REST 200", "REST 400", "REST 404", "REST 413", "gRPC OK", "gRPC INVALID_ARGUMENT"}
    assert expected_kinds <= set(answers), answers
