"""The report of a search as one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cmimh_tf.files import write_text
from cmimh_tf.progress import format_seconds
from cmimh_tf.reports.html import render
from cmimh_tf.reports.plot_style import to_data_uri
from tuner.criteria import LABEL_FREE_CRITERIA, VAL_MAP
from tuner.criteria_agreement import measure_agreement
from tuner.plots import parallel_coordinates_plot, sensitivity_plot
from tuner.trials import COMPLETED, FAILED, TrialRecord

_SHOWN = 10
_LEAST_FOR_AGREEMENT = 3
_REASON_LENGTH = 120

# A heading row and the rows below it.
TableCells = tuple[list[str], list[list[str]]]


def write_report(
    path: Path, description: Mapping[str, Any], records: Sequence[TrialRecord], result: Mapping[str, Any]
) -> None:
    """Writes report.html atomically.

    Args:
        path: the file.
        description: of the search, as in search.json.
        records: its trials, at least one of them completed.
        result: as in result.json.
    """
    write_text(path, render_report(description, records, result))


def render_report(description: Mapping[str, Any], records: Sequence[TrialRecord], result: Mapping[str, Any]) -> str:
    """The page as HTML; for the arguments see `write_report`."""
    objective, keys = result["objective"], [item["key"] for item in description["space"]]
    is_grid = result["algorithm"] == "grid"
    completed = [record for record in records if record.status == COMPLETED]
    failed = [record for record in records if record.status == FAILED]
    return render(
        "search.html",
        title=f"Search for {objective}",
        objective=objective,
        facts=_facts(description, result),
        cards=_cards(result),
        trial_share=f"{result['trial_share']:.0%}",
        best=result["best"],
        is_grid=is_grid,
        curves=[
            (
                to_data_uri(sensitivity_plot(records, key, objective, result["best_trial"], is_grid)),
                f"{objective} over {key}",
            )
            for key in keys
        ],
        parallel_coordinates=to_data_uri(parallel_coordinates_plot(records, keys, objective)),
        best_trials=_best_trials(completed, keys, objective),
        agreement=_agreement(completed),
        failed_trials=_failed_trials(failed, keys),
        description=json.dumps(dict(description), indent=2),
    )


def _facts(description: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    return [
        description["data"]["name"],
        f"{description['config']['code_length']} bits",
        f"seed {description['config']['seed']}",
        f"{description['data']['train_pairs']:,} training pairs",
        f"{result['folds']} folds" if result["folds"] > 1 else "one holdout",
        f"{result['algorithm']} search",
    ]


def _cards(result: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """For each card its title, its value, a remark, and the style of the remark."""
    preset, ratio = result["preset_value"], result["mean_cost_ratio"]
    change, kind = "", ""
    if preset is not None:
        difference = 100 * (result["best_value"] - preset)
        change, kind = f"{difference:+.1f}", "good" if difference >= 0 else "bad"
    return [
        ("best", f"{100 * result['best_value']:.1f}", change, kind),
        ("first trial", "–" if preset is None else f"{100 * preset:.1f}", "", ""),
        ("trials", str(result["trials"]), f"{result['failed']} failed", "plain"),
        (
            "time per trial",
            format_seconds(result["mean_trial_seconds"]),
            f"{ratio:.0%} of a full training" if ratio else "",
            "plain",
        ),
    ]


def _best_trials(completed: Sequence[TrialRecord], keys: Sequence[str], objective: str) -> TableCells:
    known = completed[0].metrics
    others = [name for name in (VAL_MAP, *LABEL_FREE_CRITERIA) if name != objective and name in known]
    best = sorted(completed, key=lambda record: (record.epochs, record.metrics[objective]), reverse=True)[:_SHOWN]
    rows = [
        [
            str(record.number),
            f"{100 * record.metrics[objective]:.1f}",
            *(f"{record.values[key]:.4g}" for key in keys),
            format_seconds(record.metrics["seconds"]),
            *(f"{100 * record.metrics[name]:.1f}" for name in others),
        ]
        for record in best
    ]
    return ["trial", objective, *map(_short, keys), "time", *others], rows


def _agreement(completed: Sequence[TrialRecord]) -> TableCells | None:
    """How well label-free criteria rank the trials; None with too few trials or without labels."""
    if len(completed) < _LEAST_FOR_AGREEMENT or not all(VAL_MAP in record.metrics for record in completed):
        return None
    rows = [
        [item.criterion, f"{item.spearman:.2f}", f"{100 * item.chosen_val_map:.1f}", f"{100 * item.regret:.1f}"]
        for item in measure_agreement([record.metrics for record in completed])
    ]
    return ["criterion", "Spearman", "val_map of its choice", "below the best"], rows


def _failed_trials(failed: Sequence[TrialRecord], keys: Sequence[str]) -> TableCells | None:
    rows = [
        [str(record.number), *(f"{record.values[key]:.4g}" for key in keys), record.reason[:_REASON_LENGTH]]
        for record in failed
    ]
    return (["trial", *map(_short, keys), "reason"], rows) if rows else None


def _short(key: str) -> str:
    return key.rpartition(".")[2].removesuffix("_weight").replace("_", " ")
