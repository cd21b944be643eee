"""What is known of the trials of a search, read from KerasTuner's folder, and as trials.csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cmimh_tf.atomic import write_text
from tuner.criteria import LABEL_FREE_CRITERIA, VAL_MAP

COMPLETED, FAILED, RUNNING = "completed", "failed", "running"
_COSTS = ("seconds", "training_seconds", "steps", "full_steps")
_STATUS = {"COMPLETED": COMPLETED, "FAILED": FAILED, "INVALID": FAILED}


@dataclass(frozen=True)
class TrialRecord:
    """One trial.

    Attributes:
        number: counted from 0; 0 is the preset.
        status: "completed", "failed" or "running".
        values: configuration keys to what was tried.
        metrics: criteria and cost by name; empty unless completed.
        epochs: that Hyperband gave it; 0 for the others, which all have the same share.
        reason: why it failed.
    """

    number: int
    status: str
    values: dict[str, float]
    metrics: dict[str, float] = field(default_factory=dict)
    epochs: int = 0
    reason: str = ""

    @property
    def cost_ratio(self) -> float | None:
        """Seconds of the trial over those of one full training at its pace, None unless completed."""
        if not self.metrics.get("steps"):  # Killed after its last step: what it cost is not known.
            return None
        pace = self.metrics["training_seconds"] / self.metrics["steps"]
        return self.metrics["seconds"] / (pace * self.metrics["full_steps"])


def read_trials(trials_folder: Path, keys: Sequence[str]) -> list[TrialRecord]:
    """All trials of a search in the order of their numbers.

    Args:
        trials_folder: with a folder trial_<number> for each.
        keys: the configuration keys that are searched.
    """
    records = []
    for path in trials_folder.glob("trial_*/trial.json"):
        state = json.loads(path.read_text(encoding="utf-8"))
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
                reason=_reason(path.parent, state) if status == FAILED else "",
            )
        )
    return sorted(records, key=lambda record: record.number)


def best_trial(records: Sequence[TrialRecord], objective: str) -> TrialRecord | None:
    """The completed trial with the highest objective among those that were trained longest; None if all failed."""
    completed = [record for record in records if record.status == COMPLETED]
    return max(completed, key=lambda record: (record.epochs, record.metrics[objective]), default=None)


def write_csv(path: Path, records: Sequence[TrialRecord], keys: Sequence[str]) -> None:
    """One row a trial: number, status, criteria, cost, values, reason."""
    criteria = [name for name in (VAL_MAP, *LABEL_FREE_CRITERIA) if any(name in r.metrics for r in records)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "status", *criteria, *_COSTS, "cost_ratio", "epochs", *keys, "reason"])
    for record in records:
        measures = [_cell(record.metrics.get(name)) for name in (*criteria, *_COSTS)]
        values = [_cell(record.values[key]) for key in keys]
        row = [record.number, record.status, *measures, _cell(record.cost_ratio), record.epochs or "", *values]
        writer.writerow([*row, record.reason])
    write_text(path, text.getvalue())


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _reason(folder: Path, state: dict) -> str:
    try:
        return json.loads((folder / "failure.json").read_text(encoding="utf-8"))["reason"]
    except OSError:
        # A worker on a machine without this folder left its reason there.
        lines = (state["message"] or "see the worker's log").strip().splitlines()
        return lines[-1]
