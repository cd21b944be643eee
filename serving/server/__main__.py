"""`python -m serving.server`: parses the flags before anything slow is imported, then serves."""

from __future__ import annotations

import gc
import os
import sys

from serving.server.settings import parse_flags

_SWITCH_SECONDS = 0.0005
_GARBAGE_THRESHOLD = 50_000


def main() -> None:
    """Runs the server until it is told to stop."""
    settings = parse_flags()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import uvloop

    from serving.server.logs import configure_logs
    from serving.server.running import serve_until_signal

    configure_logs(settings.log_level)
    # TensorFlow's many long-lived objects would be looked through again and again while requests come and go, which
    # leave no cycles behind.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD)
    # The thread that starts a batch must not wait 5 ms for the thread that reads requests, while the model is idle.
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        uvloop.run(serve_until_signal(settings))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
