"""`python -m serving.server`: checks the flags, then imports TensorFlow and serves."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from serving.server.settings import parse_flags
from serving.web_server import run_service


def main() -> None:
    """Runs the server until SIGTERM or SIGINT."""
    settings = parse_flags()

    def start() -> AbstractAsyncContextManager[Any]:
        from serving.server.running import running_server

        return running_server(settings)

    run_service(start, settings.log_level)


if __name__ == "__main__":
    main()
