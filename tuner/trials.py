"""The trials of a search: read from KerasTuner's folder, written to trials.csv, shown as a table on the screen."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from cmimh_tf.files import read_json, write_text
from cmimh_tf.progress import format_seconds
from tuner.criteria import LABEL_FREE_CRITERIA, VAL_MAP

COMPLETED, FAILED, RUNNING = "completed", "failed", "running"
COSTS = ("seconds", "training_seconds", "steps", "full_steps")
FAILURE_FILE = "failure.json"
_STATUS = {"COMPLETED": COMPLETED, "FAILED": FAILED, "INVALID": FAILED}
_COLUMN_WIDTH = 12


@dataclass(frozen=True)
class TrialRecord:
    """One trial.

    Attributes:
        number: counted from 0; trial 0 is the preset.
        status: "completed", "failed" or "running".
        values: the tried values by configuration key.
        metrics: criteria and cost by name; empty unless completed.
        epochs: the epochs that Hyperband assigned; 0 for other algorithms, which train all trials equally long.
        reason: why the trial failed.
    """

    number: int
    status: str
    values: dict[str, float]
    metrics: dict[str, float] = field(default_factory=dict)
    epochs: int = 0
    reason: str = ""

    @property
    def cost_ratio(self) -> float | None:
        """The trial's time divided by that of one full training at the same pace; None unless completed."""
        if not self.metrics.get("steps"):  # Resumed after its last step, so the pace is unknown.
            return None
        pace = self.metrics["training_seconds"] / self.metrics["steps"]
        return self.metrics["seconds"] / (pace * self.metrics["full_steps"])


def read_trials(trials_folder: Path, keys: Sequence[str]) -> list[TrialRecord]:
    """Reads all trials of a search, ordered by number.

    Args:
        trials_folder: with a folder trial_<number> for each trial.
        keys: the configuration keys that are searched.
    """
    records = []
    for path in trials_folder.glob("trial_*/trial.json"):
        state = read_json(path)
        status = _STATUS.get(state["status"], RUNNING)
        values = state["hyperparameters"]["values"]
        metrics = {
            name: history["observations"][0]["value"][0] for name, history in state["metrics"]["metrics"].items()
        }
        records.append(
            TrialRecord(
                number=int(state["trial_id"]),
                status=status,
                values={key: float(f"{values[key]:.6g}") for key in keys},
                metrics=metrics if status == COMPLETED else {},
                epochs=int(values.get("tuner/epochs", 0)),
                reason=_failure_reason(path.parent, state) if status == FAILED else "",
            )
        )
    return sorted(records, key=lambda record: record.number)


def best_trial(records: Sequence[TrialRecord], objective: str) -> TrialRecord | None:
    """The completed trial with the highest objective among those trained longest; None if all failed."""
    completed = [record for record in records if record.status == COMPLETED]
    return max(completed, key=lambda record: (record.epochs, record.metrics[objective]), default=None)


def write_csv(path: Path, records: Sequence[TrialRecord], keys: Sequence[str]) -> None:
    """Writes one row per trial: number, status, criteria, cost, values, reason."""
    criteria = [name for name in (VAL_MAP, *LABEL_FREE_CRITERIA) if any(name in r.metrics for r in records)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "status", *criteria, *COSTS, "cost_ratio", "epochs", *keys, "reason"])
    for record in records:
        measures = [_cell(record.metrics.get(name)) for name in (*criteria, *COSTS)]
        values = [_cell(record.values[key]) for key in keys]
        row = [record.number, record.status, *measures, _cell(record.cost_ratio), record.epochs or "", *values]
        writer.writerow([*row, record.reason])
    write_text(path, text.getvalue())


class TrialTable:
    """Prints a line for each trial that has ended.

    Args:
        objective: the criterion that is maximised.
        keys: the configuration keys that are searched.
        total: number of trials.
        workers: number of trials that run at a time, for the remaining time.
        stream: where to write.
    """

    def __init__(self, objective: str, keys: Sequence[str], total: int, workers: int, stream: TextIO):
        self.objective = objective
        self.keys = list(keys)
        self.total = total
        self.workers = max(1, workers)
        self.stream = stream
        self.shown: set[int] = set()

    def update(self, records: Sequence[TrialRecord]) -> bool:
        """Prints the trials that have ended since the last call; returns whether there were any."""
        ended = [record for record in records if record.status != RUNNING]
        new = [record for record in ended if record.number not in self.shown]
        if new and not self.shown:
            self._write(["trial", self.objective, "best", *map(_short_name, self.keys), "time", "left"])
        best = best_trial(ended, self.objective)
        for record in new:
            self.shown.add(record.number)
            self._write_trial(record, best, ended)
        return bool(new)

    def _write_trial(self, record: TrialRecord, best: TrialRecord | None, ended: Sequence[TrialRecord]) -> None:
        score = f"{record.metrics[self.objective]:.4f}" if record.status == COMPLETED else record.status
        best_score = f"{best.metrics[self.objective]:.4f}" if best else "-"
        seconds = [other.metrics["seconds"] for other in ended if other.metrics]
        left = max(0, self.total - len(self.shown))
        time_left = format_seconds(left * sum(seconds) / len(seconds) / self.workers) if seconds else "-"
        duration = format_seconds(record.metrics["seconds"]) if record.metrics else "-"
        name = f"{record.number}{' *' if record is best else ''}"
        values = [f"{record.values[key]:.4g}" for key in self.keys]
        self._write([name, score, best_score, *values, duration, time_left])
        if record.reason:
            self.stream.write(f"      {record.reason}\n")
        self.stream.flush()

    def _write(self, cells: Sequence[str]) -> None:
        first, *others = cells
        self.stream.write(f"{first:<7}" + "".join(f"{cell:>{_COLUMN_WIDTH}}" for cell in others) + "\n")


def _short_name(key: str) -> str:
    """loss.mutual_information_weight -> mutual_inf."""
    return key.rpartition(".")[2].removesuffix("_weight")[: _COLUMN_WIDTH - 2]


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _failure_reason(folder: Path, state: dict) -> str:
    try:
        return json.loads((folder / FAILURE_FILE).read_text(encoding="utf-8"))["reason"]
    except OSError:
        # The file is missing if the worker ran on another machine without this folder.
        lines = (state["message"] or "see the worker's log").strip().splitlines()
        return lines[-1]
