"""Commands while the clock jumps, on files from the future and the past."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

from tests.faults.artifacts import World
from tests.faults.commands import CommandWorker
from tests.faults.limits import writing_commands
from tests.faults.tally import LOST, SURVIVED, Tally

_YEAR = 365 * 24 * 3600


def date_files(folder: Path, rng: random.Random) -> None:
    """Gives each file of a folder a time of its last change up to a year before or after now."""
    for path in sorted(folder.rglob("*")):
        changed = time.time() + rng.uniform(-_YEAR, _YEAR)
        os.utime(path, (changed, changed))


def jump_clock(
    name: str, world: World, rng: random.Random, worker: CommandWorker, expected: dict[str, Any]
) -> tuple[str, str]:
    """Runs a command twice, the second time on what it left, with a clock that jumps at each look by up to a year."""
    folder = world.clean("clock")
    folder.mkdir()
    module, arguments, result = writing_commands(world, folder)[name]
    if name not in expected:
        outcome = worker.run(module, arguments)
        assert outcome.status == 0, outcome
        expected[name] = result()
        world.clean("clock").mkdir()
    for _ in range(1 if name in ("push", "index build") else 2):
        outcome = worker.run(module, arguments, clock=rng.randrange(2**32))
        if outcome.status != 0:
            return LOST, str(outcome)
        date_files(folder, rng)
    return (SURVIVED if result() == expected[name] else LOST), str(outcome)


def inject_clock_jumps(
    names: list[str], count: int, seed: int, world: World, worker: CommandWorker, tally: Tally
) -> None:
    """`count` runs of each command with a jumping clock."""
    expected: dict[str, Any] = {}
    for position, name in enumerate(names):
        for number in range(count):
            verdict, detail = jump_clock(name, world, random.Random(f"{seed}/{name}/{number}"), worker, expected)
            tally.add(name, "clock jumps", verdict, detail, count * (len(names) - position) - number - 1)
