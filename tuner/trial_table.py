"""The table on the screen while a search runs: a line for each trial that has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from cmimh_tf.training.progress import format_seconds
from tuner.trial_records import COMPLETED, RUNNING, TrialRecord, best_trial

_WIDTH = 12


class TrialTable:
    """Prints trials as they end.

    Args:
        objective: the criterion that is maximised.
        keys: the configuration keys that are searched.
        total: trials in all.
        workers: how many run at a time, for the time left.
        stream: where to write.
    """

    def __init__(self, objective: str, keys: Sequence[str], total: int, workers: int, stream: TextIO):
        self.objective = objective
        self.keys = list(keys)
        self.total = total
        self.workers = max(1, workers)
        self.stream = stream
        self.told: set[int] = set()

    def update(self, records: Sequence[TrialRecord]) -> bool:
        """Prints what has ended since the last call, and says whether anything has."""
        ended = [record for record in records if record.status != RUNNING]
        new = [record for record in ended if record.number not in self.told]
        if new and not self.told:
            self._write(["trial", self.objective, "best", *map(short_name, self.keys), "time", "left"])
        best = best_trial(ended, self.objective)
        for record in new:
            self.told.add(record.number)
            self._write_trial(record, best, ended)
        return bool(new)

    def _write_trial(self, record: TrialRecord, best: TrialRecord | None, ended: Sequence[TrialRecord]) -> None:
        score = f"{record.metrics[self.objective]:.4f}" if record.status == COMPLETED else record.status
        best_score = f"{best.metrics[self.objective]:.4f}" if best else "-"
        seconds = [other.metrics["seconds"] for other in ended if other.metrics]
        left = max(0, self.total - len(self.told))
        time_left = format_seconds(left * sum(seconds) / len(seconds) / self.workers) if seconds else "-"
        took = format_seconds(record.metrics["seconds"]) if record.metrics else "-"
        name = f"{record.number}{' *' if record is best else ''}"
        values = [f"{record.values[key]:.4g}" for key in self.keys]
        self._write([name, score, best_score, *values, took, time_left])
        if record.reason:
            self.stream.write(f"      {record.reason}\n")
        self.stream.flush()

    def _write(self, cells: Sequence[str]) -> None:
        first, *others = cells
        self.stream.write(f"{first:<7}" + "".join(f"{cell:>{_WIDTH}}" for cell in others) + "\n")


def short_name(key: str) -> str:
    """loss.mutual_information_weight -> mutual_inf."""
    return key.rpartition(".")[2].removesuffix("_weight")[: _WIDTH - 2]
