"""The report of a search as one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cmimh_tf.atomic import write_text
from cmimh_tf.reports.style import to_data_uri
from cmimh_tf.reports.stylesheet import STYLESHEET
from cmimh_tf.training.progress import format_seconds
from tuner.criteria import LABEL_FREE_CRITERIA, VAL_MAP
from tuner.criteria_agreement import measure_agreement
from tuner.plots import parallel_coordinates_plot, sensitivity_plot
from tuner.trial_records import COMPLETED, FAILED, TrialRecord

_SHOWN = 10
_LEAST_FOR_AGREEMENT = 3


def write_report(
    path: Path, description: Mapping[str, Any], records: Sequence[TrialRecord], result: Mapping[str, Any]
) -> None:
    """Writes report.html, complete or not at all.

    Args:
        path: where.
        description: of the search, as in search.json.
        records: its trials, at least one of them completed.
        result: as in result.json.
    """
    write_text(path, render_report(description, records, result))


def render_report(description: Mapping[str, Any], records: Sequence[TrialRecord], result: Mapping[str, Any]) -> str:
    """The page: no script, no file beside it, readable at any width."""
    objective, keys = result["objective"], [item["key"] for item in description["space"]]
    is_grid = result["algorithm"] == "grid"
    curves = "".join(
        f'<img src="{to_data_uri(sensitivity_plot(records, key, objective, result["best_trial"], is_grid))}" '
        f'alt="{escape(objective)} over {escape(key)}">'
        for key in keys
    )
    lines = to_data_uri(parallel_coordinates_plot(records, keys, objective))
    how_to_read = (
        "Lines join trials that differ in this weight alone."
        if is_grid
        else "The other weights differ between the points too; the grey curve is an average over them."
    )
    completed = [record for record in records if record.status == COMPLETED]
    failed = [record for record in records if record.status == FAILED]
    sections = [
        _header(description, result),
        _section("Curves of each weight", f'<div class="figures">{curves}</div>', how_to_read),
        _section(
            "All weights together", f'<img class="wide" src="{lines}" alt="parallel coordinates of all trials">',
            "Log scales, each over what was tried. The better a trial, the brighter its line.",
        ),
        _section("Best trials", _best_table(completed, keys, objective)),
        _section("Criteria without labels", *_agreement(completed)) if _comparable(completed) else "",
        _section("Failed trials", _failed_table(failed, keys)) if failed else "",
        _section(
            "Description",
            "<details><summary>all values</summary>"
            f"<pre>{escape(json.dumps(dict(description), indent=2))}</pre></details>",
        ),
    ]  # fmt: skip
    title = f"Search for {escape(objective)}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLESHEET}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _header(description: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    preset = result["preset_value"]
    change = ""
    if preset is not None:
        difference = 100 * (result["best_value"] - preset)
        change = f'<span class="change {"good" if difference >= 0 else "bad"}">{difference:+.1f}</span>'
    cards = [
        ("best", f"{100 * result['best_value']:.1f}", change),
        ("preset", "–" if preset is None else f"{100 * preset:.1f}", ""),
        ("trials", str(result["trials"]), f'<span class="change">{result["failed"]} failed</span>'),
        ("a trial", format_seconds(result["mean_trial_seconds"]), _cost(result)),
    ]
    shown = "".join(
        f'<div class="card"><span class="task">{name}</span><b>{value}</b>{extra}</div>' for name, value, extra in cards
    )
    values = "".join(f"<li><code>{escape(key)} = {value:g}</code></li>" for key, value in result["best"].items())
    facts = " · ".join(
        [
            escape(description["data"]["name"]),
            f"{description['config']['code_length']} bits",
            f"seed {description['config']['seed']}",
            f"{description['data']['train_pairs']:,} training pairs",
            f"{result['folds']} folds" if result["folds"] > 1 else "one holdout",
            f"{result['algorithm']} search",
        ]
    )
    return (
        f'<header><h1>Search for {escape(result["objective"])}</h1><p class="facts">{facts}</p>'
        f'<div class="cards">{shown}</div><p class="note">{escape(result["objective"])} in %, on held-out training '
        f"pairs after {result['trial_share']:.0%} of the epochs. The query set was not looked at.</p>"
        f'<ul class="reasons">{values}</ul></header>'
    )


def _cost(result: Mapping[str, Any]) -> str:
    ratio = result["mean_cost_ratio"]
    return f'<span class="change">{ratio:.0%} of a full training</span>' if ratio else ""


def _section(title: str, body: str, note: str = "") -> str:
    note = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{note}{body}</section>"


def _best_table(completed: Sequence[TrialRecord], keys: Sequence[str], objective: str) -> str:
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
    return _table(["trial", objective, *map(_short, keys), "time", *others], rows)


def _failed_table(failed: Sequence[TrialRecord], keys: Sequence[str]) -> str:
    rows = [[str(r.number), *(f"{r.values[key]:.4g}" for key in keys), escape(r.reason[:120])] for r in failed]
    return _table(["trial", *map(_short, keys), "reason"], rows)


def _comparable(completed: Sequence[TrialRecord]) -> bool:
    return len(completed) >= _LEAST_FOR_AGREEMENT and all(VAL_MAP in record.metrics for record in completed)


def _agreement(completed: Sequence[TrialRecord]) -> tuple[str, str]:
    rows = [
        [item.criterion, f"{item.spearman:.2f}", f"{100 * item.chosen_val_map:.1f}", f"{100 * item.regret:.1f}"]
        for item in measure_agreement([record.metrics for record in completed])
    ]
    table = _table(["criterion", "Spearman", "val_map of its choice", "below the best"], rows)
    return table, "How each ranks these trials against val_map, which needs labels."


def _short(key: str) -> str:
    return key.rpartition(".")[2].removesuffix("_weight").replace("_", " ")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th scope=col>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr><th scope=row>{first}</th>{''.join(f'<td>{cell}</td>' for cell in others)}</tr>"
        for first, *others in rows
    )
    return f'<div class="scroll"><table><tr>{cells}</tr>{body}</table></div>'
