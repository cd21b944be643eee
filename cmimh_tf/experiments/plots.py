"""The plots of experiments, drawn from results."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cmimh_tf.experiments.experiment import Plot
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cmimh_tf.experiments.results import Results, Summary

_CONTENDER = "CMIMH"
_CONTENDER_COLOUR = "#c1331f"
_COLOURS = (
    "#1f6feb",
    "#57a05b",
    "#8f5bb5",
    "#d1890b",
    "#0e8a8a",
    "#a5446b",
    "#6e7781",
    "#3d4ab5",
    "#7a8b00",
    "#b06a3b",
)
# Not as many as colours, so that no two of the first 90 lines look the same.
_MARKERS = "os^Dv<>Pp"
_PANEL_WIDTH, _PANEL_HEIGHT = 4.6, 3.6


def score_over_bits_plot(measure: str, title: str, bits: Sequence[int], rows: Sequence[str]) -> Plot:
    """A measure over the code length, one line per method and one panel per cross-modal task."""
    lengths = list(bits)
    return _score_plot(
        f"{measure}_over_bits", measure, title, "code length in bits", lengths, [{"bits": n} for n in lengths], rows
    )


def score_over_place_plot(
    measure: str, title: str, key: str, values: Sequence[Any], x_title: str, bits: int, rows: Sequence[str | None]
) -> Plot:
    """A measure over another quantity than the code length, such as the size of the training set.

    The row None draws one line through the points of all rows.
    """
    places = [{key: value, "bits": bits} for value in values]
    return _score_plot(
        f"{measure}_over_{key}_{bits}_bits", measure, f"{title}, {bits} bits", x_title, list(values), places, rows
    )


def precision_at_k_plot(task: str, bits: int, rows: Sequence[str]) -> Plot:
    """Precision among the first k, one line per method."""

    def curve(metrics: Any) -> tuple[list[float], list[float]]:
        return metrics["precision_at_k"]["k"], metrics["precision_at_k"][task]

    name = f"precision_at_k_{task}_{bits}_bits"
    return _curve_plot(name, task, bits, rows, "Precision among the first k", "k", curve)


def precision_recall_plot(task: str, bits: int, rows: Sequence[str]) -> Plot:
    """Precision over recall as the Hamming radius grows, one line per method."""

    def curve(metrics: Any) -> tuple[list[float], list[float]]:
        values = metrics["precision_recall"][task]
        points = [point for point in zip(values["recall"], values["precision"], strict=True) if None not in point]
        return [point[0] for point in points], [point[1] for point in points]

    name = f"precision_recall_{task}_{bits}_bits"
    return _curve_plot(name, task, bits, rows, "Precision and recall within a radius", "recall", curve)


def _score_plot(
    name: str,
    measure: str,
    title: str,
    x_title: str,
    x_values: Sequence[Any],
    places: Sequence[dict[str, Any]],
    rows: Sequence[str | None],
) -> Plot:
    def draw(results: "Results") -> "Figure":
        figure, panels = _panels([f"{title}, {task.replace('_', ' ')}" for task in CROSS_MODAL_TASKS], x_title, "in %")
        for task, axes in zip(CROSS_MODAL_TASKS, panels, strict=True):
            # Equal steps: code lengths and weights are spaced by ratios.
            axes.set_xticks(
                range(len(x_values)), [f"{value:,}" if isinstance(value, int) else f"{value:g}" for value in x_values]
            )
            for row in rows:
                summaries = [results.summary(row, f"{measure}.{task}", place) for place in places]
                _plot_summaries(axes, summaries, row, rows)
        _shared_legend(figure, panels)
        return figure

    return Plot(name, f"{title} over {x_title} for image to text and text to image.", draw)


def _curve_plot(
    name: str,
    task: str,
    bits: int,
    rows: Sequence[str],
    title: str,
    x_title: str,
    curve: Callable[[Any], tuple[list[float], list[float]]],
) -> Plot:
    heading = f"{title}, {task.replace('_', ' ')}, {bits} bits"

    def draw(results: "Results") -> "Figure":
        figure, (axes,) = _panels([heading], x_title, "precision")
        for row in rows:
            # The points of a curve over recall differ between seeds, so one seed is drawn instead of a mean.
            first = next(results.measured(row, {"bits": bits}), None)
            if first is not None and first["metrics"]["labels"]:
                x, y = curve(first["metrics"])
                axes.plot(x, y, label=row, **_line_style(row, rows))
        _shared_legend(figure, [axes])
        return figure

    return Plot(name, f"{heading}, first seed, one line per method.", draw)


def _plot_summaries(
    axes: "Axes", summaries: "Sequence[Summary | None]", row: str | None, rows: Sequence[str | None]
) -> None:
    known = [(x, summary) for x, summary in enumerate(summaries) if summary is not None]
    if known:
        axes.errorbar(
            [x for x, _ in known],
            [100 * summary.mean for _, summary in known],
            [100 * (summary.deviation or 0.0) for _, summary in known],
            label=row,
            capsize=2,
            elinewidth=1.0,
            **_line_style(row, rows),
        )


def _line_style(row: str | None, rows: Sequence[str | None]) -> dict[str, Any]:
    if row in (None, _CONTENDER):
        return {"color": _CONTENDER_COLOUR, "marker": "o", "markersize": 4, "linewidth": 2.2, "zorder": 3}
    number = list(rows).index(row)
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 3.5,
        "linewidth": 1.1,
    }


def _panels(titles: Sequence[str], x_title: str, y_title: str) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure

    from cmimh_tf.reports.plot_style import dress

    figure = Figure(figsize=(_PANEL_WIDTH * len(titles), _PANEL_HEIGHT), layout="constrained")
    panels = []
    for position, title in enumerate(titles, 1):
        axes = figure.add_subplot(1, len(titles), position)
        dress(axes, title, x_title, y_title if position == 1 else "")
        panels.append(axes)
    return figure, panels


def _shared_legend(figure: "Figure", panels: "Sequence[Axes]") -> None:
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def probs_plot(rows: Sequence[str], bits: int) -> Plot:
    """How decided the bits are: shares of P(h = 1 | x), one line per variant and one panel per modality."""

    def draw(results: "Results") -> "Figure":
        figure, panels = _panels([f"Probabilities, {name} bits" for name in ("image", "text")], "P(h = 1 | x)", "share")
        for modality, axes in zip(("image", "text"), panels, strict=True):
            axes.set_yscale("log")
            for row in rows:
                shares = next(
                    (
                        result["probs_histogram"][modality]
                        for result in results.measured(row, {"bits": bits})
                        if "probs_histogram" in result
                    ),
                    None,
                )
                if shares is not None:
                    edges = [number / len(shares) for number in range(len(shares) + 1)]
                    axes.stairs(shares, edges, label=row, color=_line_style(row, rows)["color"])
        _shared_legend(figure, panels)
        return figure

    return Plot(
        f"probs_{bits}_bits", f"Histograms of the probabilities of {bits} bits, first seed, for each variant.", draw
    )
