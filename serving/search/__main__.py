"""`python -m serving.search`: checks the flags, then imports TensorFlow and serves."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from serving.search.settings import parse_flags
from serving.web_server import run_service


def main() -> None:
    """Runs the service until SIGTERM or SIGINT."""
    settings = parse_flags()

    def start() -> AbstractAsyncContextManager[Any]:
        from serving.search.service import running_search

        return running_search(settings)

    run_service(start, settings.log_level)


if __name__ == "__main__":
    main()
