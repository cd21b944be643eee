"""The report of an evaluated model: its contents, and the page that shows them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cmimh_tf.metrics.evaluation import TASKS
from cmimh_tf.reports import plots
from cmimh_tf.reports.html import render
from cmimh_tf.reports.plot_style import TASK_TITLES, to_data_uri

_MEASURES = {
    "map_at_50": "mAP@50",
    "map_at_1000": "mAP@1000",
    "map": "mAP",
    "neighbour_map": "neighbour mAP",
    "recall_one_at_1": "RecallOne@1",
    "recall_one_at_5": "RecallOne@5",
    "recall_one_at_10": "RecallOne@10",
}
_STATISTICS = {
    "bit_balance": ("balance of the bits", "1 is best"),
    "correlation_mse": ("squared correlation of two bits", "0 is best"),
    "constant_bits": ("bits that never change", "0 is best"),
    "saturated_share": ("saturated probabilities", "share"),
    "total_correlation": ("total correlation", "estimated by the discriminator"),
}


@dataclass(frozen=True)
class Item:
    """An image or a text on the page.

    Attributes:
        text: the caption, or the id if there is none.
        picture: a data URI, or None.
        is_relevant: whether it is a right result; None for a query.
        distance: Hamming distance to the query; None for a query.
    """

    text: str
    picture: str | None = None
    is_relevant: bool | None = None
    distance: int | None = None


@dataclass(frozen=True)
class Retrieved:
    """A query and its first results.

    Attributes:
        query: the query.
        results: nearest first.
    """

    query: Item
    results: Sequence[Item]


@dataclass(frozen=True)
class ReportContent:
    """Everything that a report shows.

    Attributes:
        title: the heading.
        metrics: of `evaluate_model`.
        baseline: the metrics of the model to compare with, or None.
        blessed: whether the model is good enough.
        reasons: why, one sentence each.
        history: the terms after each epoch.
        probs: for "image" and "text" [rows, code_length].
        codes: for "image" and "text" uint8 [rows, code_length / 8].
        text_queries: texts with the images found.
        image_queries: images with the texts found.
        config: the configuration, nested.
        problems: signs of collapse or saturation.
        facts: further lines of the summary, such as the sizes of the splits.
    """

    title: str
    metrics: Mapping[str, Any]
    baseline: Mapping[str, Any] | None
    blessed: bool
    reasons: Sequence[str]
    history: Sequence[Mapping[str, float]]
    probs: Mapping[str, np.ndarray]
    codes: Mapping[str, np.ndarray]
    text_queries: Sequence[Retrieved]
    image_queries: Sequence[Retrieved]
    config: Mapping[str, Any]
    problems: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def render_report(content: ReportContent) -> str:
    """The page as HTML."""
    metrics = content.metrics
    name = "map_at_1000" if metrics["labels"] else "neighbour_map"
    statistics = metrics.get("code_statistics", {})
    return render(
        "model.html",
        title=content.title,
        blessed=content.blessed,
        facts=content.facts,
        headline=_MEASURES[name],
        cards=[(TASK_TITLES[task], *_with_change(content, name, task)) for task in TASKS if task in metrics[name]],
        has_labels=metrics["labels"],
        chance=metrics["chance" if metrics["labels"] else "neighbour_map_chance"],
        neighbour_chance=metrics["neighbour_map_chance"],
        neighbours=metrics["neighbour_map_sample"]["neighbours"],
        reasons=content.reasons,
        problems=content.problems,
        has_baseline=content.baseline is not None,
        tasks=[TASK_TITLES[task] for task in TASKS],
        measures=[
            (title, [_with_change(content, key, task) for task in TASKS])
            for key, title in _MEASURES.items()
            if key in metrics
        ],
        curves=[
            (to_data_uri(plots.precision_at_k_plot(metrics)), "Precision among the first k for the four tasks"),
            (to_data_uri(plots.precision_recall_plot(metrics)), "Precision over recall for the four tasks"),
        ]
        if metrics["labels"]
        else [],
        text_queries=content.text_queries,
        image_queries=content.image_queries,
        training_plot=to_data_uri(plots.training_plot(content.history)) if content.history else None,
        code_plots=[
            (to_data_uri(plots.probs_plot(content.probs)), "Histogram of the probabilities"),
            (to_data_uri(plots.balance_plot(content.codes)), "Share of ones of each bit"),
            (to_data_uri(plots.correlation_plot(content.codes)), "Correlation of every two bits"),
        ],
        modalities=list(statistics),
        statistics=[
            (title, remark, [values[key] for values in statistics.values()])
            for key, (title, remark) in _STATISTICS.items()
            if statistics and all(key in values for values in statistics.values())
        ],
        config=json.dumps(content.config, indent=2),
    )


def _with_change(content: ReportContent, measure: str, task: str) -> tuple[float | None, float | None]:
    """A measure and its difference to the baseline, None where there is none."""
    value = content.metrics[measure].get(task)
    before = content.baseline.get(measure, {}).get(task) if content.baseline is not None else None
    return value, None if value is None or before is None else value - before
