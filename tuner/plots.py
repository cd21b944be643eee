"""The plots of a search, each a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from cmimh_tf.reports.plot_style import FAINT, INK, WIDTH, add_legend, dress, new_axes
from tuner.trials import COMPLETED, FAILED, TrialRecord

_POINT, _BEST, _PRESET = "#1f6feb", "#1a7f37", "#d1590b"
_COLOURS = colormaps["viridis"]
_LEAST_FOR_CURVE = 6
# Width of the smoothing kernel as a share of the searched range.
_BANDWIDTH = 0.15
_MOST_TICKS = 6


def sensitivity_plot(records: Sequence[TrialRecord], key: str, objective: str, best: int, is_grid: bool) -> Figure:
    """The objective over one weight, on a log scale.

    Points are trials, in which the other weights differ too; the curve is their kernel average. In a grid, lines join
    the trials that differ in this weight alone, as in the paper's sensitivity figures.

    Args:
        records: the trials.
        key: the weight.
        objective: the criterion.
        best: number of the best trial.
        is_grid: whether the trials are a grid.
    """
    completed = [record for record in records if record.status == COMPLETED]
    figure, axes = new_axes(key, key.rpartition(".")[2], objective)
    axes.set_xscale("log")
    _plain_log_ticks(axes, [record.values[key] for record in records])
    x = np.array([record.values[key] for record in completed])
    y = np.array([record.metrics[objective] for record in completed])
    if is_grid:
        _join_grid_lines(axes, completed, key, objective)
    elif len(completed) >= _LEAST_FOR_CURVE and x.min() < x.max():
        axes.plot(*_kernel_average(x, y), color=FAINT, linewidth=1.5, zorder=1, label="average")
    axes.scatter(x, y, s=16, color=_POINT, zorder=2)
    for number, colour, label in ((0, _PRESET, "preset"), (best, _BEST, "best")):
        marked = [record for record in completed if record.number == number]
        for record in marked:
            axes.scatter(
                record.values[key], record.metrics[objective], s=48, color=colour, marker="D", zorder=3, label=label
            )
    failed = [record.values[key] for record in records if record.status == FAILED]
    if failed:
        bottom = axes.get_ylim()[0]
        axes.scatter(failed, [bottom] * len(failed), s=24, color="#c1331f", marker="x", label="failed", clip_on=False)
    add_legend(axes, loc="best")
    return figure


def parallel_coordinates_plot(records: Sequence[TrialRecord], keys: Sequence[str], objective: str) -> Figure:
    """One line a completed trial, through its weights on log scales and its objective; the better, the brighter.

    Args:
        records: the trials.
        keys: the weights, from left to right.
        objective: the criterion, on the last axis.
    """
    # The best are drawn last, on top.
    completed = sorted((r for r in records if r.status == COMPLETED), key=lambda record: record.metrics[objective])
    columns = [np.log10([record.values[key] for record in completed]) for key in keys]
    columns.append(np.array([record.metrics[objective] for record in completed]))
    titles = [key.rpartition(".")[2].removesuffix("_weight") for key in keys] + [objective]
    figure = Figure(figsize=(2 * WIDTH, 3.4), layout="constrained")
    axes = figure.add_subplot()
    dress(axes, "Each line is a trial")
    axes.set_xlim(-0.15, len(columns) - 0.7)
    axes.set_ylim(-0.05, 1.05)
    axes.set_yticks([])
    axes.set_xticks(range(len(columns)), [title.replace("_", "\n") for title in titles], fontsize=9)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    heights = np.array([_to_unit(column) for column in columns])
    for position, column in enumerate(columns):
        axes.axvline(position, color=FAINT, linewidth=0.8, zorder=0)
        for height in (0.0, 0.5, 1.0):
            value = column.min() + height * (column.max() - column.min())
            text = f"{value:.3f}" if position == len(keys) else f"{10**value:.3g}"
            axes.annotate(
                text, (position, height), (4, 0), textcoords="offset points", fontsize=7, color=INK, zorder=4,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
            )  # fmt: skip
    for line, rank in zip(heights.T, np.linspace(0, 1, len(completed)), strict=True):
        axes.plot(line, color=_COLOURS(rank), linewidth=1.0 + 1.5 * rank, alpha=0.85)
    return figure


def _kernel_average(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    logs = np.log(x)
    grid = np.linspace(logs.min(), logs.max(), 60)
    width = _BANDWIDTH * (logs.max() - logs.min())
    weights = np.exp(-0.5 * ((grid[:, None] - logs[None]) / width) ** 2)
    return np.exp(grid), weights @ y / weights.sum(axis=1)


def _join_grid_lines(axes: Axes, completed: Sequence[TrialRecord], key: str, objective: str) -> None:
    lines: dict[tuple, list[TrialRecord]] = {}
    for record in completed:
        others = tuple((name, value) for name, value in record.values.items() if name != key)
        lines.setdefault(others, []).append(record)
    for position, (others, line) in enumerate(sorted(lines.items())):
        line = sorted(line, key=lambda record: record.values[key])
        label = ", ".join(f"{name.rpartition('.')[2].removesuffix('_weight')} {value:g}" for name, value in others)
        axes.plot(
            [record.values[key] for record in line],
            [record.metrics[objective] for record in line],
            color=_COLOURS(0.9 * position / max(1, len(lines) - 1)), linewidth=1.3, zorder=1, label=label or None,
        )  # fmt: skip


def _plain_log_ticks(axes: Axes, values: Sequence[float]) -> None:
    """1, 2, 5, 10, ... as numbers, when the range is too short for powers of ten."""
    spread = max(values) / min(values)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if spread < 200 else (1,), numticks=_MOST_TICKS * 3))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _to_unit(column: np.ndarray) -> np.ndarray:
    spread = column.max() - column.min()
    return (column - column.min()) / spread if spread > 0 else np.full(len(column), 0.5)
