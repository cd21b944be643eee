"""A chief and its workers as processes of one command, which end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PARENT_VARIABLE = "CMIMH_TF_PARENT"
_POLL_SECONDS = 0.5
_CHIEF_GRACE_SECONDS = 5.0
_TERM_GRACE_SECONDS = 5.0
_LOG_LINES = 5


class WorkerDied(RuntimeError):
    """A process of the search ended before its time."""


@dataclass(frozen=True)
class _Member:
    name: str
    process: subprocess.Popen
    log: Path


def run_chief_and_workers(
    command: Sequence[str], num_workers: int, logs: Path, on_poll: Callable[[], None] | None = None
) -> None:
    """Runs `command` once as the chief and `num_workers` times as a worker, on 127.0.0.1, until all are done.

    Args:
        command: what each process runs; KerasTuner's environment variables tell it what it is.
        num_workers: at least 1.
        logs: folder for chief.log, worker0.log, ...
        on_poll: called twice a second.

    Raises:
        WorkerDied: if a process fails; all others have then been ended too.
    """
    logs.mkdir(parents=True, exist_ok=True)
    shared = {
        "KERASTUNER_ORACLE_IP": "127.0.0.1",
        "KERASTUNER_ORACLE_PORT": str(_free_port()),
        PARENT_VARIABLE: str(os.getpid()),
    }
    threads = str(max(1, (os.cpu_count() or 1) // num_workers))
    limits = {"TF_NUM_INTRAOP_THREADS": threads, "OMP_NUM_THREADS": threads}
    members: list[_Member] = []
    # Otherwise a SIGTERM would end this process without a chance to end the others.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        members.append(_start("chief", command, shared, logs))
        for number in range(num_workers):
            members.append(_start(f"worker{number}", command, {**limits, **shared}, logs))
        _watch(members[0], members[1:], on_poll)
    finally:
        _end(members)
        signal.signal(signal.SIGTERM, before)


def die_with_parent() -> None:
    """Ends this process when the one that started it is gone, however that ended; for chief and workers."""
    if PARENT_VARIABLE not in os.environ:
        return
    parent = int(os.environ[PARENT_VARIABLE])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent watch").start()


def _start(name: str, command: Sequence[str], variables: Mapping[str, str], logs: Path) -> _Member:
    log = logs / f"{name}.log"
    environment = {**os.environ, **variables, "KERASTUNER_TUNER_ID": name}
    with log.open("ab") as output:
        # A session of its own: Ctrl-C reaches this process only, which then ends the others.
        process = subprocess.Popen(
            list(command), env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    return _Member(name, process, log)


def _watch(chief: _Member, workers: Sequence[_Member], on_poll: Callable[[], None] | None) -> None:
    """Returns when all workers are done; raises as soon as one has failed, or the chief is gone before them."""
    while True:
        if on_poll is not None:
            on_poll()
        codes = [worker.process.poll() for worker in workers]
        for worker, code in zip(workers, codes, strict=True):
            if code not in (None, 0):
                raise WorkerDied(_obituary(worker))
        if all(code == 0 for code in codes):
            break
        if chief.process.poll() not in (None, 0):
            raise WorkerDied(_obituary(chief))
        time.sleep(_POLL_SECONDS)
    # All that matters is on disk; a chief that is still busy is not waited for.
    try:
        if chief.process.wait(_CHIEF_GRACE_SECONDS):
            raise WorkerDied(_obituary(chief))
    except subprocess.TimeoutExpired:
        pass


def _end(members: Sequence[_Member]) -> None:
    alive = [member.process for member in members if member.process.poll() is None]
    for process in alive:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _TERM_GRACE_SECONDS
    for process in alive:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _obituary(member: _Member) -> str:
    code = member.process.returncode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    lines = member.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    said = "".join(f"\n  {line}" for line in lines)
    return f"{member.name} {how}; the search was stopped. The same command goes on. {member.log} ends with:{said}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
