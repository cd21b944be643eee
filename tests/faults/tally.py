"""Counts what became of each fault: survived, detected or lost."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

# The right result in spite of the fault; one sentence that names the file; or neither.
SURVIVED, DETECTED, LOST = VERDICTS = ("survived", "detected", "lost")


@dataclass
class Tally:
    """The faults so far.

    Attributes:
        stream: for a line per fault with the time left; None for none.
        counts: by (target, fault, verdict).
        losses: a description of each lost fault.
    """

    stream: TextIO | None = None
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def add(self, target: str, fault: str, verdict: str, detail: str, left: int = 0) -> None:
        """Counts a fault.

        Args:
            target: what was hit.
            fault: the kind of fault.
            verdict: one of `VERDICTS`.
            detail: how to repeat it, and what happened.
            left: the number of faults that are still to come.
        """
        self.counts[target, fault, verdict] += 1
        if verdict == LOST:
            self.losses.append(f"{target}, {fault}: {detail}")
        if self.stream is not None:
            done = sum(self.counts.values())
            minutes = (time.monotonic() - self.started) / done * left / 60
            self.stream.write(f"[{done}] {target}, {fault}: {verdict}; {left} to come, {minutes:.0f} min left\n")
            if verdict == LOST:
                self.stream.write(f"    {detail}\n")
            self.stream.flush()

    def total(self, verdict: str | None = None) -> int:
        """The number of faults, or of those with a verdict."""
        return sum(count for key, count in self.counts.items() if verdict in (None, key[2]))

    def table(self, column: int = 0) -> str:
        """Faults by target (0) or by kind (1) as text."""
        rows = [("", "injected", *VERDICTS)]
        for name in dict.fromkeys(key[column] for key in self.counts):
            counts = [sum(n for key, n in self.counts.items() if key[column] == name and key[2] == v) for v in VERDICTS]
            rows.append((name, str(sum(counts)), *map(str, counts)))
        rows.append(("all", str(self.total()), *(str(self.total(verdict)) for verdict in VERDICTS)))
        width = max(len(row[0]) for row in rows)
        return "\n".join(f"{row[0]:<{width}}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows)

    def write(self, path: Path) -> None:
        """Writes the counts and the losses as JSON."""
        rows = [
            {"target": target, "fault": fault, "verdict": verdict, "count": count}
            for (target, fault, verdict), count in self.counts.items()
        ]
        totals = {"injected": self.total(), **{verdict: self.total(verdict) for verdict in VERDICTS}}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**totals, "faults": rows, "losses": self.losses}, indent=2) + "\n")
