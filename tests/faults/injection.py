"""Damages artifacts, runs the commands that read them, and judges what they do."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.faults.artifacts import Target, World
from tests.faults.commands import CommandWorker, Outcome
from tests.faults.corruption import corrupt
from tests.faults.tally import DETECTED, LOST, SURVIVED, Tally


def inject_corruptions(
    makers: dict[Callable[[World], Target], int],
    count: int,
    seed: int,
    world: World,
    worker: CommandWorker,
    tally: Tally,
) -> None:
    """Damages artifacts one by one.

    Args:
        makers: the artifacts, with the share of the faults that each gets.
        count: the number of faults.
        seed: of all choices. Fault i of a target depends on the seed, the target and i only.
        world: where the artifacts are made.
        worker: runs the commands.
        tally: counts.
    """
    shares = [count * share / sum(makers.values()) for share in makers.values()]
    counts = [max(1, round(share)) for share in shares]
    left = sum(counts)
    for maker, faults in zip(makers, counts, strict=True):
        target = maker(world)
        target.keep(worker)
        for number in range(faults):
            left -= 1
            rng = random.Random(f"{seed}/{target.name}/{number}")
            target.restore()
            files, others = ([target.folder / name for name in names] for names in (target.files, target.others))
            kind, damaged = corrupt(files, others, rng)
            outcome = target.run(worker)
            verdict = judge(outcome, target, damaged)
            names = ", ".join(str(path.relative_to(target.folder)) for path in damaged)
            said = (outcome.refusal or f"{outcome.output[-500:]}{outcome.error[-1500:]}").strip()
            tally.add(target.name, kind, verdict, f"fault {number} in {names}: status {outcome.status}, {said}", left)


def judge(outcome: Outcome, target: Target, damaged: list[Path]) -> str:
    """Survived with the same result, detected by a sentence that names a damaged file or the artifact, or lost."""
    if outcome.status == 0:
        try:
            return SURVIVED if target.result() == target.expected else LOST
        except Exception:
            return LOST  # The command made nothing that can be read.
    sentence = outcome.refusal or ""
    return DETECTED if any(str(name) in sentence for name in (*damaged, target.folder)) else LOST
