"""Processes of a parallel search: starts KerasTuner's chief and its workers, and ends them together."""

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
    """A process of the search failed or was killed."""


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
        command: the command of each process; KerasTuner's environment variables assign its role.
        num_workers: at least 1.
        logs: folder for chief.log, worker0.log, ...
        on_poll: called twice per second.

    Raises:
        WorkerDied: if a process fails; the others have been terminated by then.
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
    # By default, SIGTERM would end this process without terminating the others.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        members.append(_start("chief", command, shared, logs))
        for number in range(num_workers):
            members.append(_start(f"worker{number}", command, {**limits, **shared}, logs))
        _watch(members[0], members[1:], on_poll)
    finally:
        _terminate(members)
        signal.signal(signal.SIGTERM, before)


def die_with_parent() -> None:
    """Makes the chief or a worker end when the process that started it has ended, for whatever reason."""
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
        # In a new session, so that Ctrl-C only reaches this process, which then terminates the others.
        process = subprocess.Popen(
            list(command), env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    return _Member(name, process, log)


def _watch(chief: _Member, workers: Sequence[_Member], on_poll: Callable[[], None] | None) -> None:
    """Returns when all workers are done; raises if one of them fails or the chief ends before them."""
    while True:
        if on_poll is not None:
            on_poll()
        codes = [worker.process.poll() for worker in workers]
        for worker, code in zip(workers, codes, strict=True):
            if code not in (None, 0):
                raise WorkerDied(_describe_failure(worker))
        if all(code == 0 for code in codes):
            break
        if chief.process.poll() not in (None, 0):
            raise WorkerDied(_describe_failure(chief))
        time.sleep(_POLL_SECONDS)
    # All results are on disk by now, so a chief that is still busy may be terminated.
    try:
        if chief.process.wait(_CHIEF_GRACE_SECONDS):
            raise WorkerDied(_describe_failure(chief))
    except subprocess.TimeoutExpired:
        pass


def _terminate(members: Sequence[_Member]) -> None:
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


def _describe_failure(member: _Member) -> str:
    code = member.process.returncode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    lines = member.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    shown = "".join(f"\n  {line}" for line in lines)
    return f"{member.name} {how}; the search was stopped. To resume, repeat the command. End of {member.log}:{shown}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
