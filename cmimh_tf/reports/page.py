"""The report as one self-contained HTML page."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from matplotlib.figure import Figure

from cmimh_tf.metrics.evaluation import TASKS
from cmimh_tf.reports import plots
from cmimh_tf.reports.content import Item, ReportContent, Retrieved
from cmimh_tf.reports.style import TASK_TITLES, to_data_uri
from cmimh_tf.reports.stylesheet import STYLESHEET

_MEASURES = {
    "map_at_50": "mAP@50",
    "map_at_1000": "mAP@1000",
    "map": "mAP",
    "recall_one_at_1": "RecallOne@1",
    "recall_one_at_5": "RecallOne@5",
    "recall_one_at_10": "RecallOne@10",
}
_STATISTICS = {
    "bit_balance": ("balance of the bits", "1 is best"),
    "correlation_mse": ("squared correlation of two bits", "0 is best"),
    "constant_bits": ("bits that never change", "0 is best"),
    "saturated_share": ("saturated probabilities", "share"),
    "total_correlation": ("total correlation", "as the discriminator sees it"),
}


def render_report(content: ReportContent) -> str:
    """The page: no script, no file beside it, readable at any width."""
    sections = [
        _header(content),
        _section("Measures", _measures(content), _measures_note(content)),
        _section("Curves", _curves(content)) if content.metrics["labels"] else "",
        _section(
            "Texts and the pictures found", _retrieved(content.text_queries, "pictures"), _retrieved_note(content)
        ),
        _section("Pictures and the texts found", _retrieved(content.image_queries, "texts")),
        _section("Training", _wide_figure(plots.training_plot(content.history), "Each term over the epochs"))
        if content.history
        else "",
        _section("Codes", _codes(content)),
        _section(
            "Configuration", f"<details><summary>all values</summary><pre>{_json(content.config)}</pre></details>"
        ),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(content.title)}</title>\n<style>{STYLESHEET}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _header(content: ReportContent) -> str:
    verdict, kind = ("blessed", "good") if content.blessed else ("not blessed", "bad")
    metrics = content.metrics
    name, title = ("map_at_1000", "mAP@1000") if metrics["labels"] else ("recall_one_at_10", "RecallOne@10")
    before: Mapping[str, float] = content.baseline[name] if content.baseline is not None else {}
    cards = [_card(TASK_TITLES[task], metrics[name][task], before.get(task)) for task in TASKS if task in metrics[name]]
    facts = " · ".join(f"{escape(key)} {escape(value)}" for key, value in content.facts.items())
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in content.reasons)
    problems = "".join(f'<p class="warning">{escape(problem)}</p>' for problem in content.problems)
    return (
        f'<header><h1>{escape(content.title)} <span class="badge {kind}">{verdict}</span></h1>'
        f'<p class="facts">{facts}</p><div class="cards" aria-label="{title}">{"".join(cards)}</div>'
        f'<p class="note">{title} in %{_chance(metrics)}</p><ul class="reasons">{reasons}</ul>{problems}</header>'
    )


def _card(title: str, value: float, baseline: float | None) -> str:
    change = ""
    if baseline is not None:
        difference = 100 * (value - baseline)
        kind = "good" if difference >= 0 else "bad"
        change = f'<span class="change {kind}">{difference:+.1f}</span>'
    return f'<div class="card"><span class="task">{title}</span><b>{100 * value:.1f}</b>{change}</div>'


def _chance(metrics: Mapping[str, Any]) -> str:
    return f"; random codes would have about {100 * metrics['chance']:.1f}" if metrics["labels"] else ""


def _section(title: str, body: str, note: str = "") -> str:
    note = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{note}{body}</section>"


def _measures(content: ReportContent) -> str:
    rows = []
    for key, title in _MEASURES.items():
        if key not in content.metrics:
            continue
        cells = "".join(_measure_cell(content, key, task) for task in TASKS)
        rows.append(f"<tr><th scope=row>{title}</th>{cells}</tr>")
    head = "".join(f"<th scope=col>{TASK_TITLES[task]}</th>" for task in TASKS)
    return f'<div class="scroll"><table><tr><th>in %</th>{head}</tr>{"".join(rows)}</table></div>'


def _measure_cell(content: ReportContent, key: str, task: str) -> str:
    if task not in content.metrics[key]:
        return '<td class="none">–</td>'
    value = content.metrics[key][task]
    change = ""
    if content.baseline is not None and task in content.baseline.get(key, {}):
        change = f" <small>({100 * (value - content.baseline[key][task]):+.1f})</small>"
    return f"<td>{100 * value:.1f}{change}</td>"


def _measures_note(content: ReportContent) -> str:
    parts = []
    if not content.metrics["labels"]:
        parts.append(
            "There are no labels: only RecallOne@k is measured, the share of queries whose own pair is among the"
        )
        parts.append("first k.")
    if content.baseline is not None:
        parts.append("In brackets: the difference to the model that was blessed before.")
    return " ".join(parts)


def _curves(content: ReportContent) -> str:
    return _figures(
        (plots.precision_at_k_plot(content.metrics), "Precision among the first k for the four tasks"),
        (plots.precision_recall_plot(content.metrics), "Precision over recall for the four tasks"),
    )


def _codes(content: ReportContent) -> str:
    figures = _figures(
        (plots.probs_plot(content.probs), "Histogram of the probabilities"),
        (plots.balance_plot(content.codes), "Share of ones of each bit"),
        (plots.correlation_plot(content.codes), "Correlation of every two bits"),
    )
    statistics = content.metrics.get("code_statistics", {})
    rows = []
    for key, (title, remark) in _STATISTICS.items():
        if not all(key in values for values in statistics.values()) or not statistics:
            continue
        cells = "".join(f"<td>{_number(values[key])}</td>" for values in statistics.values())
        rows.append(f'<tr><th scope=row>{title} <small class="none">{remark}</small></th>{cells}</tr>')
    head = "".join(f"<th scope=col>{modality}</th>" for modality in statistics)
    table = f'<div class="scroll"><table><tr><th></th>{head}</tr>{"".join(rows)}</table></div>' if rows else ""
    return figures + table


def _figures(*figures: tuple[Figure, str]) -> str:
    pictures = "".join(f'<img src="{to_data_uri(figure)}" alt="{alt}">' for figure, alt in figures)
    return f'<div class="figures">{pictures}</div>'


def _wide_figure(figure: Figure, alt: str) -> str:
    return f'<img class="wide" src="{to_data_uri(figure)}" alt="{alt}">'


def _retrieved_note(content: ReportContent) -> str:
    right = "shares a label with the query" if content.metrics["labels"] else "is the query's own pair"
    return f"Queries drawn at random. Nearest first; green with a tick {right}, and the number is the Hamming distance."


def _retrieved(examples: Sequence[Retrieved], kind: str) -> str:
    rows = []
    for example in examples:
        results = "".join(f'<li class="{_kind(item)}">{_item(item)}</li>' for item in example.results)
        rows.append(
            f'<div class="example"><div class="query">{_item(example.query)}</div>'
            f'<ol class="{kind}">{results}</ol></div>'
        )
    return "".join(rows)


def _item(item: Item) -> str:
    mark = ""
    if item.is_relevant is not None:
        sign, word = ("✓", "right") if item.is_relevant else ("✗", "wrong")
        mark = f'<span class="mark {_kind(item)}" title="{word}">{sign} {item.distance}</span>'
    text = escape(item.text)
    picture = f'<img src="{item.picture}" alt="{text}" title="{text}">' if item.picture else f"<span>{text}</span>"
    return picture + mark


def _kind(item: Item) -> str:
    return "good" if item.is_relevant else "bad"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _json(value: Any) -> str:
    return escape(json.dumps(value, indent=2))
