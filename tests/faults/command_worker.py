"""A process that runs commands one after the other, so that TensorFlow is imported once.

Each line of its input is a request as JSON: `module` and `arguments` of the command, `settings`, values of modules to
change for it, and `clock`, the seed of a clock that jumps, or null. The answer is a line of JSON with `status`,
`output` and `error`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import IO, Any


def main() -> None:
    """Answers until the input ends."""
    requests, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    for line in requests:
        answers.write(json.dumps(run(**json.loads(line))) + "\n")
        answers.flush()


def run(module: str, arguments: list[str], settings: dict[str, Any], clock: int | None) -> dict[str, Any]:
    """Runs a command as `python -m module arguments`."""
    if clock is not None:
        settings = {**settings, "time.time": jumping_clock(clock)}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        with redirected(output, error), changed(settings):
            status = call_main(module, arguments)
        for file in (output, error):
            file.seek(0)
        return {"status": status, "output": output.read().decode(), "error": error.read().decode()}


def call_main(module: str, arguments: list[str]) -> int:
    """Calls the module's `main` and returns the exit status of the command."""
    before, sys.argv = sys.argv, [module, *arguments]
    try:
        is_package = hasattr(importlib.import_module(module), "__path__")
        importlib.import_module(f"{module}.__main__" if is_package else module).main()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.argv = before
        forget_models()
    return 0


def forget_models() -> None:
    """Frees the graphs of the last command."""
    if "keras" in sys.modules:
        sys.modules["keras"].backend.clear_session()
    gc.collect()


@contextlib.contextmanager
def redirected(output: IO[bytes], error: IO[bytes]):
    """Sends what the process writes, that of C++ code included, to two files."""
    kept = os.dup(1), os.dup(2)
    os.dup2(output.fileno(), 1)
    os.dup2(error.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in zip((1, 2), kept, strict=True):
            os.dup2(original, descriptor)
            os.close(original)


@contextlib.contextmanager
def changed(settings: dict[str, Any]):
    """Sets values such as {"cmimh_tf.stored_rows.IN_MEMORY_BYTES": 1000}, and resets them."""
    before = {}
    for name, value in settings.items():
        module, _, attribute = name.rpartition(".")
        owner = importlib.import_module(module)
        before[name] = owner, attribute, getattr(owner, attribute)
        setattr(owner, attribute, value)
    try:
        yield
    finally:
        for owner, attribute, value in before.values():
            setattr(owner, attribute, value)


def jumping_clock(seed: int) -> Callable[[], float]:
    """A `time.time` that is wrong by up to a year in either direction, by another time at each look.

    gRPC sees the right time: it passes Python's time to its C++ part, which waits until its own clock reaches it.
    """
    now, rng = time.time, random.Random(seed)

    def look() -> float:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return now() if caller.startswith("grpc.") else now() + rng.uniform(-1, 1) * 365 * 24 * 3600

    return look


if __name__ == "__main__":
    main()
