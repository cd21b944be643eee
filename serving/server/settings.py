"""Settings and flags of the model server."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf import command_line
from serving.web_server import WebSettings, add_web_flags, web_flags

_EPILOG = """\
example:
  python -m serving.server --model-base serving_model/cmimh
  curl -d '{"signature_name": "hash_caption", "instances": ["a dog on a beach"]}' \\
      http://127.0.0.1:8501/v1/models/cmimh:predict
"""


@dataclass(frozen=True, kw_only=True)
class Settings(WebSettings):
    """Settings of the model server.

    Attributes:
        model_base: folder with one numbered folder per version, or None with `model_config_file`.
        model_name: the name under which `model_base` is served.
        model_config_file: a models.config in TF Serving's text format.
        rest_port, grpc_port: ports; 0 chooses a free one, None turns the interface off.
        poll_seconds: time between two looks for new versions and for changes of the configuration file.
        max_batch_size: maximum number of rows that are joined to one run of the model.
        batch_timeout: seconds that the first row of a batch waits for others.
        max_enqueued_rows: maximum number of waiting rows; further requests are rejected (429).
        num_batch_threads: number of batches that run at the same time; 0 means one per processor.
        threads_per_batch: number of processors for one batch; 0 means all.
        max_rows: maximum number of rows per request.
    """

    model_base: Path | None = None
    model_name: str = "cmimh"
    model_config_file: Path | None = None
    rest_port: int | None = 8501
    grpc_port: int | None = 8500
    poll_seconds: float = 1.0
    max_batch_size: int = 64
    batch_timeout: float = 0.0
    max_enqueued_rows: int = 1024
    num_batch_threads: int = 0
    threads_per_batch: int = 1
    max_rows: int = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.model_base is None) == (self.model_config_file is None):
            raise ValueError(
                "`model_base` or `model_config_file` must be given, one of them. "
                f"Received: model_base={self.model_base}, model_config_file={self.model_config_file}."
            )
        if self.rest_port and self.rest_port == self.grpc_port:
            raise ValueError(
                f"`rest_port` and `grpc_port` must differ. Received: rest_port={self.rest_port}, "
                f"grpc_port={self.grpc_port}."
            )
        self.check_at_least(1, "max_batch_size", "max_enqueued_rows", "max_rows")
        self.check_at_least(0, "batch_timeout", "num_batch_threads", "threads_per_batch")
        if not self.poll_seconds > 0:
            raise ValueError(f"`poll_seconds` must be positive. Received: poll_seconds={self.poll_seconds}.")


def parse_flags(arguments: Sequence[str] | None = None) -> Settings:
    """The settings of a command line. A mistake ends the program with one sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.server",
        description="Serves exported models with the REST and gRPC interfaces of TF Serving.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, default = parser.add_argument, Settings
    add("--model-base", type=command_line.path, metavar="DIR", help="folder with one numbered folder per version")
    add("--model-name", default=default.model_name, metavar="NAME", help="name of the model (%(default)s)")
    add("--model-config-file", type=Path, metavar="FILE", help="models.config, instead of --model-base")
    add("--poll-seconds", type=float, default=default.poll_seconds, metavar="S",
        help="seconds between two looks for new versions (%(default)s)")  # fmt: skip
    add("--rest-port", type=int, default=default.rest_port, metavar="PORT",
        help="0 chooses a free port, -1 turns REST off (%(default)s)")  # fmt: skip
    add("--grpc-port", type=int, default=default.grpc_port, metavar="PORT",
        help="0 chooses a free port, -1 turns gRPC off (%(default)s)")  # fmt: skip
    add("--max-rows", type=int, default=default.max_rows, metavar="N", help="rows per request (%(default)s)")
    add = parser.add_argument_group("batching").add_argument
    add("--max-batch-size", type=int, default=default.max_batch_size, metavar="N", help="rows per run (%(default)s)")
    add("--batch-timeout", type=float, default=default.batch_timeout, metavar="S",
        help="seconds that a row waits for others (%(default)s)")  # fmt: skip
    add("--max-enqueued-rows", type=int, default=default.max_enqueued_rows, metavar="N",
        help="waiting rows; beyond them requests are rejected (%(default)s)")  # fmt: skip
    add("--num-batch-threads", type=int, default=default.num_batch_threads, metavar="N",
        help="batches at the same time; 0 means one per processor (%(default)s)")  # fmt: skip
    add("--threads-per-batch", type=int, default=default.threads_per_batch, metavar="N",
        help="processors per batch; 0 means all (%(default)s)")  # fmt: skip
    add("--batching-parameters-file", type=Path, metavar="FILE", help="batching.config; overrides these flags")
    add_web_flags(parser)
    flags = vars(parser.parse_args(arguments))
    try:
        return _settings(flags)
    except (ValueError, OSError) as error:
        parser.error(str(error))


def _settings(flags: dict[str, Any]) -> Settings:
    batching_file = flags.pop("batching_parameters_file")
    flags = web_flags(flags)
    if batching_file is not None:
        from serving.server.config_files import read_batching_parameters

        flags.update(read_batching_parameters(batching_file))
    for name in ("rest_port", "grpc_port"):
        if flags[name] > 65535:
            raise ValueError(f"`{name}` must be at most 65535. Received: {name}={flags[name]}.")
        flags[name] = None if flags[name] < 0 else flags[name]
    settings = Settings(**flags)
    bases = [] if settings.model_base is None else [settings.model_base]
    if settings.model_config_file is not None:
        from serving.server.config_files import read_model_configs

        bases = [config.base_path for config in read_model_configs(settings.model_config_file)]
    for base in bases:
        if not base.is_dir():
            raise ValueError(f"The folder of the model's versions must exist. Received: {base}.")
    return settings
