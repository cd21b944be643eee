"""The folder of a search and the result in it.

search.json     what is searched, on which data, with which objective
trials.csv      one row per trial, with every criterion and the cost
best.json       the best weights, for `--set @best.json`
result.json     the objective, its best value and the cost of the search; written last
report.html     a curve for each weight, parallel coordinates, the best trials
trials/         KerasTuner's state
training/       checkpoints of running trials
logs/           output of each training
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from cmimh_tf.files import LOCK_FILE, locked_folder, read_json, remove_folder, write_json
from cmimh_tf.progress import format_seconds
from tuner.trials import COMPLETED, COSTS, FAILED, TrialRecord, best_trial


@dataclass(frozen=True)
class SearchFolder:
    """Paths of one search.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def description(self) -> Path:
        return self.path / "search.json"

    @property
    def csv(self) -> Path:
        return self.path / "trials.csv"

    @property
    def best(self) -> Path:
        return self.path / "best.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def trials(self) -> Path:
        return self.path / "trials"

    @property
    def training(self) -> Path:
        return self.path / "training"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def claim(self, description: dict[str, Any]) -> None:
        """Ties the folder to one search, or checks that it already belongs to it.

        Args:
            description: everything that affects a trial, JSON-ready.

        Raises:
            ValueError: if the folder holds another search; the message names the first key that differs.
        """
        # TensorFlow, which takes seconds to import.
        from cmimh_tf.training.run_folder import first_difference

        if not self.description.exists():
            write_json(self.description, description, checksum=True)
            return
        existing = read_json(self.description)
        difference = first_difference(existing, json.loads(json.dumps(description)))
        if difference:
            raise ValueError(
                f"{self.path} holds another search: {difference}. Choose another folder, or delete this search with "
                "--overwrite."
            )

    def clear(self) -> None:
        """Deletes the search in the folder; a folder without one is left unchanged."""
        if not self.description.exists():
            return
        for path in self.path.iterdir():
            if path.is_dir():
                remove_folder(path)
            elif path.name != LOCK_FILE:
                path.unlink()

    def finished(self, trials: int) -> dict[str, Any] | None:
        """The result of a search with at least `trials` trials; None if there is none yet."""
        if not self.result.exists():
            return None
        result = read_json(self.result)
        return result if result["asked_trials"] >= trials else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder for this process. The lock is released when the process ends, even if it is killed.

        Raises:
            ValueError: if another search holds the lock.
        """
        with locked_folder(
            self.path,
            lambda process: ValueError(
                f"`--out` must not be in use. Received: {self.path}, where a search is running (process {process})."
            ),
        ):
            yield


def summarise(
    records: Sequence[TrialRecord], objective: str, *, asked_trials: int, algorithm: str, folds: int, trial_share: float
) -> dict[str, Any] | None:
    """The result of a search, JSON-ready; None if no trial succeeded.

    Args:
        records: all trials.
        objective: the criterion that was maximised.
        asked_trials: the maximum number of trials.
        algorithm, folds, trial_share: of the search.

    Returns:
        The objective, its best value and the preset's, the best weights with all their criteria, the numbers of trials
        and failures, and the cost. `mean_cost_ratio` is the time of a trial divided by that of one full training at
        the same pace.
    """
    best = best_trial(records, objective)
    if best is None:
        return None
    completed = [record for record in records if record.status == COMPLETED]
    preset = next((record for record in completed if record.number == 0), None)
    ratios = [record.cost_ratio for record in completed if record.cost_ratio is not None]
    return {
        "objective": objective,
        "best_value": best.metrics[objective],
        "preset_value": preset.metrics[objective] if preset else None,
        "best_trial": best.number,
        "best": dict(best.values),
        "criteria_of_best": {name: value for name, value in best.metrics.items() if name not in COSTS},
        "asked_trials": asked_trials,
        "trials": len(records),
        "stopped": _why_stopped(records, asked_trials),
        "failed": sum(record.status == FAILED for record in records),
        "trial_seconds": sum(record.metrics["seconds"] for record in completed),
        "mean_trial_seconds": mean(record.metrics["seconds"] for record in completed),
        "mean_cost_ratio": mean(ratios) if ratios else None,
        "algorithm": algorithm,
        "folds": folds,
        "trial_share": trial_share,
    }


def write_results(
    folder: SearchFolder,
    description: Mapping[str, Any],
    records: Sequence[TrialRecord],
    best: Mapping[str, Any],
    result: Mapping[str, Any],
) -> None:
    """Writes best.json, report.html and, last, result.json; deletes the checkpoints.

    Args:
        folder: of the search.
        description: as in search.json.
        records: all trials.
        best: the best values by configuration key.
        result: of `summarise`.
    """
    # matplotlib, which workers do not need.
    from tuner.report import write_report

    write_json(folder.best, best, checksum=True)
    write_report(folder.report, description, records, result)
    remove_folder(folder.training)
    write_json(folder.result, result, checksum=True)


def describe_result(result: Mapping[str, Any], folder: SearchFolder) -> str:
    """A result in a few lines for the screen."""
    preset = f"; the first trial reached {result['preset_value']:.4f}" if result["preset_value"] is not None else ""
    cost = f", {result['mean_cost_ratio']:.0%} of a full training" if result["mean_cost_ratio"] else ""
    lines = [
        f"best {result['objective']}: {result['best_value']:.4f} in trial {result['best_trial']}{preset}",
        *(f"  {key} = {value:g}" for key, value in result["best"].items()),
        f"{result['trials']} trials, {result['failed']} failed; mean time per trial: "
        f"{format_seconds(result['mean_trial_seconds'])}{cost}",
        *([] if result["stopped"] is None else [f"stopped early: {result['stopped']}"]),
        f"to use the best weights: --set @{folder.best}",
        f"report: {folder.report}",
    ]
    return "\n".join(lines) + "\n"


def _why_stopped(records: Sequence[TrialRecord], asked_trials: int) -> str | None:
    """Why there are fewer trials than requested, if the last trial failed."""
    if len(records) >= asked_trials or records[-1].status != FAILED:
        return None
    return f"too many trials failed in a row; reason of the last failure: {records[-1].reason}"
