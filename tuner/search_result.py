"""What a search found: result.json, and the same in words."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from cmimh_tf.training.progress import format_seconds
from tuner.search_folder import SearchFolder
from tuner.trial_records import COMPLETED, FAILED, TrialRecord, best_trial

_COST_NAMES = ("seconds", "training_seconds", "steps", "full_steps")


def summarise(
    records: Sequence[TrialRecord], objective: str, *, asked_trials: int, algorithm: str, folds: int, trial_share: float
) -> dict[str, Any] | None:
    """The result of a search, JSON-ready; None when no trial succeeded.

    Args:
        records: all trials.
        objective: the criterion that was maximised.
        asked_trials: how many were to be run at most.
        algorithm, folds, trial_share: of the search.

    Returns:
        The objective by name with its best value and the preset's, the best weights with all their criteria, how many
        trials there were and how many failed, and their cost: `mean_cost_ratio` is the time of a trial over that of one
        full training at the trial's own pace.
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
        "criteria_of_best": {name: value for name, value in best.metrics.items() if name not in _COST_NAMES},
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


def _why_stopped(records: Sequence[TrialRecord], asked_trials: int) -> str | None:
    """Why there are fewer trials than were asked for, if the last of them failed."""
    if len(records) >= asked_trials or records[-1].status != FAILED:
        return None
    return f"too many trials failed in a row, the last one since: {records[-1].reason}"


def describe_result(result: dict[str, Any], folder: SearchFolder) -> str:
    """A result in a few lines for the screen."""
    against = f"; the preset had {result['preset_value']:.4f}" if result["preset_value"] is not None else ""
    cost = f", {result['mean_cost_ratio']:.0%} of a full training" if result["mean_cost_ratio"] else ""
    lines = [
        f"best {result['objective']}: {result['best_value']:.4f} in trial {result['best_trial']}{against}",
        *(f"  {key} = {value:g}" for key, value in result["best"].items()),
        f"{result['trials']} trials, {result['failed']} of them failed; one took "
        f"{format_seconds(result['mean_trial_seconds'])} on average{cost}",
        *([] if result["stopped"] is None else [f"stopped early: {result['stopped']}"]),
        f"take it with: --set @{folder.best}",
        f"report: {folder.report}",
    ]
    return "\n".join(lines) + "\n"
