"""What the server can be told, from the command line or a test."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_EPILOG = """\
example:
  python -m serving.server --model-base serving_model/cmimh
  curl -d '{"signature_name": "hash_caption", "instances": ["a dog on a beach"]}' \\
      http://127.0.0.1:8501/v1/models/cmimh:predict
"""


@dataclass(frozen=True)
class Settings:
    """Every knob, with its default.

    Attributes:
        model_base: folder with one numbered folder for each version, or None with `model_config_file`.
        model_name: the name that `model_base` is served under.
        model_config_file: a models.config in TF Serving's text format.
        host: address to bind to; other machines can only connect if it is not 127.0.0.1.
        rest_port, grpc_port: ports; 0 takes a free one, None leaves that interface out.
        poll_seconds: how often new versions, and changes of the configuration file, are looked for.
        max_batch_size: rows that one run of the model takes from several requests.
        batch_timeout: seconds that the first row of a batch waits for others.
        max_enqueued_rows: rows that may wait; a request beyond is answered with 429.
        num_batch_threads: batches that run at the same time; 0 takes as many as there are processors.
        threads_per_batch: processors that one of them may use; 0 takes all.
        max_body_bytes: of a request, after it was unpacked too.
        max_rows: of one request.
        request_timeout: seconds after which a request is answered with 504.
        shutdown_timeout: seconds that running requests get after SIGTERM.
        shutdown_delay: seconds between SIGTERM, when /readyz says no, and the end of accepting connections.
        token: bearer token that requests must carry, or None.
        tls_certificate, tls_key: PEM files; both or neither.
        access_log: whether each request is logged; errors always are.
        log_level: of the log.
    """

    model_base: Path | None = None
    model_name: str = "cmimh"
    model_config_file: Path | None = None
    host: str = "127.0.0.1"
    rest_port: int | None = 8501
    grpc_port: int | None = 8500
    poll_seconds: float = 1.0
    max_batch_size: int = 64
    batch_timeout: float = 0.0
    max_enqueued_rows: int = 1024
    num_batch_threads: int = 0
    threads_per_batch: int = 1
    max_body_bytes: int = 16 << 20
    max_rows: int = 4096
    request_timeout: float = 30.0
    shutdown_timeout: float = 30.0
    shutdown_delay: float = 0.0
    token: str | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    access_log: bool = False
    log_level: str = "info"

    def __post_init__(self) -> None:
        if (self.model_base is None) == (self.model_config_file is None):
            raise ValueError(
                "`model_base` or `model_config_file` must be given, one of them. "
                f"Received: model_base={self.model_base}, model_config_file={self.model_config_file}."
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError(
                "`tls_certificate` and `tls_key` must be given together. "
                f"Received: tls_certificate={self.tls_certificate}, tls_key={self.tls_key}."
            )
        if self.token is not None and not self.token:
            raise ValueError("`token` must not be empty. Received: ''.")
        for name in ("max_batch_size", "max_enqueued_rows", "max_body_bytes", "max_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={getattr(self, name)}.")
        for name in ("poll_seconds", "request_timeout", "shutdown_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={getattr(self, name)}.")
        for name in ("batch_timeout", "shutdown_delay", "num_batch_threads", "threads_per_batch"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` must be at least 0. Received: {name}={getattr(self, name)}.")


def parse_flags(arguments: Sequence[str] | None = None) -> Settings:
    """The settings of a command line; a mistake ends the program with one sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.server",
        description="Serves exported models with TF Serving's REST and gRPC contract.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model-base", type=Path, metavar="DIR", help="folder with one numbered folder a version")
    add("--model-name", default=Settings.model_name, metavar="NAME", help="name to serve it under (%(default)s)")
    add("--model-config-file", type=Path, metavar="FILE", help="models.config, in place of --model-base")
    add("--batching-parameters-file", type=Path, metavar="FILE", help="batching.config, in place of the flags below")
    add("--host", default=Settings.host, help="address to bind to (%(default)s)")
    add("--rest-port", type=int, default=Settings.rest_port, metavar="PORT", help="0 takes a free one (%(default)s)")
    add("--grpc-port", type=int, default=Settings.grpc_port, metavar="PORT", help="-1 serves no gRPC (%(default)s)")
    add("--poll-seconds", type=float, default=Settings.poll_seconds, metavar="S", help="between looks for versions")
    add("--max-batch-size", type=int, default=Settings.max_batch_size, metavar="N", help="rows a run (%(default)s)")
    add("--batch-timeout", type=float, default=Settings.batch_timeout, metavar="S", help="a row waits for others")
    add("--max-enqueued-rows", type=int, default=Settings.max_enqueued_rows, metavar="N", help="beyond it: 429")
    add("--num-batch-threads", type=int, default=Settings.num_batch_threads, metavar="N", help="0 takes all cores")
    add("--threads-per-batch", type=int, default=Settings.threads_per_batch, metavar="N", help="0 takes all cores")
    add("--max-body-bytes", type=int, default=Settings.max_body_bytes, metavar="N", help="of a request (%(default)s)")
    add("--max-rows", type=int, default=Settings.max_rows, metavar="N", help="of a request (%(default)s)")
    add("--request-timeout", type=float, default=Settings.request_timeout, metavar="S", help="then: 504 (%(default)s)")
    add("--shutdown-timeout", type=float, default=Settings.shutdown_timeout, metavar="S", help="for running requests")
    add("--shutdown-delay", type=float, default=Settings.shutdown_delay, metavar="S", help="not ready, still serving")
    add("--token-file", type=Path, metavar="FILE", help="bearer token; also CMIMH_SERVING_TOKEN in the environment")
    add("--tls-certificate", type=Path, metavar="FILE", help="PEM, with --tls-key")
    add("--tls-key", type=Path, metavar="FILE", help="PEM")
    add("--access-log", action="store_true", help="log each request, not only errors")
    add("--log-level", choices=("debug", "info", "warning", "error"), default=Settings.log_level)
    flags = vars(parser.parse_args(arguments))
    token_file, batching_file = flags.pop("token_file"), flags.pop("batching_parameters_file")
    token = os.environ.get("CMIMH_SERVING_TOKEN")
    try:
        if token_file is not None:
            token = token_file.read_text(encoding="utf-8").strip()
        if batching_file is not None:
            from serving.server.config_files import read_batching_parameters

            flags.update(read_batching_parameters(batching_file))
        for name in ("rest_port", "grpc_port"):
            flags[name] = None if flags[name] < 0 else flags[name]
        return Settings(token=token, **flags)
    except (ValueError, OSError) as error:
        parser.error(str(error))
