"""The chief of a parallel search: hands out trials until they are done, and never waits for the dead.

KerasTuner's own server waits for every worker that it has ever heard of, in steps of 20 seconds, and for ever if one of
them has died.
"""

from __future__ import annotations

import math
import os
import time
from concurrent import futures
from typing import Any

import grpc

# KerasTuner exports the chief's environment variables, not its server.
from keras_tuner.src import protos
from keras_tuner.src.distribute import oracle_chief

from tuner.workers import PARENT_VARIABLE

SILENCE_VARIABLE = "CMIMH_TF_CHIEF_SILENCE"
_DEFAULT_SILENCE_SECONDS = 3600.0
_POLL_SECONDS = 0.2


class _Servicer(oracle_chief.OracleServicer):
    """KerasTuner's, with the time of the last request."""

    def __init__(self, oracle: Any):
        super().__init__(oracle)
        self.heard_at = time.monotonic()

    def CreateTrial(self, request: Any, context: Any) -> Any:
        self.heard_at = time.monotonic()
        return super().CreateTrial(request, context)

    def EndTrial(self, request: Any, context: Any) -> Any:
        self.heard_at = time.monotonic()
        return super().EndTrial(request, context)


def serve_oracle(oracle: Any) -> None:
    """Serves until all trials have ended and all workers have been told, or none has been heard of for long.

    The address is in KERASTUNER_ORACLE_IP and KERASTUNER_ORACLE_PORT. How long is CMIMH_TF_CHIEF_SILENCE, in seconds,
    an hour unless set: it must be longer than a trial. A chief of one command with its workers waits as long as that
    command lives, which sees when a worker dies.

    Raises:
        OSError: if the address is taken.
    """
    address = f"{os.environ['KERASTUNER_ORACLE_IP']}:{os.environ['KERASTUNER_ORACLE_PORT']}"
    usual_silence = math.inf if PARENT_VARIABLE in os.environ else _DEFAULT_SILENCE_SECONDS
    longest_silence = float(os.environ.get(SILENCE_VARIABLE, usual_silence))
    # One thread: requests change the oracle one after the other.
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1), options=[("grpc.so_reuseport", 0)])
    servicer = _Servicer(oracle)
    protos.get_service_grpc().add_OracleServicer_to_server(servicer, server)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"The chief cannot listen at {address}: {error}") from error
    if not bound:
        raise OSError(f"The chief cannot listen at {address}.")
    server.start()
    try:
        while not (servicer.stop_triggered and not oracle.ongoing_trials and not oracle.tuner_ids):
            if time.monotonic() - servicer.heard_at > longest_silence:
                break
            time.sleep(_POLL_SECONDS)
    finally:
        oracle.save()
        server.stop(grace=1.0).wait()
