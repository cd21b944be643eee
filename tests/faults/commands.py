"""Runs the project's commands: in a process that is kept, or in one of their own that may be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        status: its exit status; negative if it was killed by a signal.
        output, error: what it wrote.
    """

    status: int
    output: str
    error: str

    @property
    def refusal(self) -> str | None:
        """The one sentence with which a command ends that cannot go on; None if it succeeded or ended otherwise."""
        # A pipeline writes its sentence among the lines of its progress.
        lines = [line for line in (self.error + "\n" + self.output).splitlines() if line.startswith("error: ")]
        is_plain = "Traceback" not in self.error + self.output
        return lines[-1] if self.status > 0 and lines and is_plain else None


def environment() -> dict[str, str]:
    """The variables for a command."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"}


def command_line(module: str, arguments: list[str]) -> list[str]:
    """The command as a user types it."""
    if module == "pipeline.run_local":
        return [sys.executable, str(ROOT / "pipeline" / "run_local.py"), *arguments]
    return [sys.executable, "-m", module, *arguments]


def run_command(module: str, arguments: list[str], **popen: Any) -> Outcome:
    """Runs a command in a process of its own."""
    done = subprocess.run(
        command_line(module, arguments),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment(),
        **popen,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


class CommandWorker:
    """A process that runs one command after the other. One that dies is replaced."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None

    def run(
        self, module: str, arguments: list[str], settings: dict[str, Any] | None = None, clock: int | None = None
    ) -> Outcome:
        """Runs a command.

        Args:
            module, arguments: the command.
            settings: values of modules to change for it.
            clock: the seed of a clock that jumps; None leaves the clock alone.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("command_worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=ROOT,
                env=environment(),
            )
        process = self._process
        request = {"module": module, "arguments": list(map(str, arguments)), "settings": settings or {}, "clock": clock}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self._process = None
            process.communicate()
            return Outcome(process.returncode, "", f"the process died while it ran {module}")
        return Outcome(**json.loads(line))

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
