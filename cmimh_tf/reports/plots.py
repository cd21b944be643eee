"""The plots of one evaluated model, each a matplotlib Figure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cmimh_tf.codes import unpack_codes
from cmimh_tf.metrics.evaluation import TASKS
from cmimh_tf.reports.plot_style import (
    FAINT,
    INK,
    MODALITY_COLOURS,
    TASK_COLOURS,
    TASK_TITLES,
    WIDTH,
    add_legend,
    dress,
    new_axes,
)
from cmimh_tf.terms import TERMS

# Columns of a training's history, in the order of the panels.
TERM_TITLES = {
    "loss": "loss",
    **{term.name: term.title for term in TERMS},
    "discriminator": "discriminator loss",
    "validation_score": "validation score",
}
_HISTOGRAM_BINS = 40
_COLUMNS = 2


def precision_at_k_plot(metrics: Mapping[str, Any]) -> Figure:
    """Precision among the first k, over k, for the four tasks.

    Args:
        metrics: of `evaluate_retrieval`, with labels.
    """
    figure, axes = new_axes("Precision among the first k", "k", "precision")
    curve = metrics["precision_at_k"]
    for task in TASKS:
        axes.plot(curve["k"], curve[task], color=TASK_COLOURS[task], label=TASK_TITLES[task], marker=".", markersize=4)
    axes.axhline(metrics["chance"], color=FAINT, linestyle=":", label="chance")
    axes.set_ylim(0, 1)
    add_legend(axes, ncols=2)
    return figure


def precision_recall_plot(metrics: Mapping[str, Any]) -> Figure:
    """Precision over recall as the Hamming radius grows, for the four tasks.

    Args:
        metrics: of `evaluate_retrieval`, with labels.
    """
    figure, axes = new_axes("Precision and recall within a Hamming radius", "recall", "precision")
    for task in TASKS:
        curve = metrics["precision_recall"][task]
        points = [point for point in zip(curve["recall"], curve["precision"], strict=True) if None not in point]
        recall, precision = zip(*points, strict=True) if points else ((), ())
        axes.plot(recall, precision, color=TASK_COLOURS[task], label=TASK_TITLES[task], marker=".", markersize=4)
    axes.axhline(metrics["chance"], color=FAINT, linestyle=":", label="chance")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    add_legend(axes, ncols=2)
    return figure


def training_plot(history: Sequence[Mapping[str, float]]) -> Figure:
    """One small plot per term of the objective, over the epochs.

    Args:
        history: one row per epoch, with "epoch" and the terms.
    """
    terms = [name for name in TERM_TITLES if history and name in history[0]]
    num_rows = max(1, -(-len(terms) // _COLUMNS))
    figure = Figure(figsize=(1.5 * WIDTH, 1.5 * num_rows), layout="constrained")
    epochs = [row["epoch"] for row in history]
    for position, name in enumerate(terms, 1):
        axes = figure.add_subplot(num_rows, _COLUMNS, position)
        dress(axes, TERM_TITLES[name], "epoch" if position > len(terms) - _COLUMNS else "")
        axes.plot(epochs, [row[name] for row in history], color=INK, linewidth=1.2)
    return figure


def probs_plot(probs: Mapping[str, np.ndarray]) -> Figure:
    """How certain the bits are: a histogram of P(h = 1 | x) per modality.

    Args:
        probs: for "image" and "text" an array [rows, code_length].
    """
    figure, axes = new_axes("Probabilities of the bits", "P(h = 1 | x)", "share")
    edges = np.linspace(0, 1, _HISTOGRAM_BINS + 1)
    for modality, values in probs.items():
        counts, _ = np.histogram(values, bins=edges)
        axes.stairs(
            counts / counts.sum(), edges, color=MODALITY_COLOURS[modality], label=modality, fill=True, alpha=0.4
        )
    axes.axvline(0.5, color=FAINT, linestyle=":")
    axes.set_xlim(0, 1)
    add_legend(axes)
    return figure


def balance_plot(codes: Mapping[str, np.ndarray]) -> Figure:
    """The share of items in which each bit is 1; one half is best.

    Args:
        codes: for "image" and "text" uint8 [rows, code_length / 8].
    """
    figure, axes = new_axes("Balance of the bits", "bit", "share of ones")
    for offset, (modality, packed) in zip((-0.2, 0.2), codes.items(), strict=True):
        shares = unpack_codes(packed).mean(axis=0)
        axes.bar(np.arange(len(shares)) + offset, shares, 0.4, color=MODALITY_COLOURS[modality], label=modality)
    axes.axhline(0.5, color=INK, linestyle=":", linewidth=1)
    axes.set_ylim(0, 1)
    add_legend(axes, ncols=2)
    return figure


def correlation_plot(codes: Mapping[str, np.ndarray]) -> Figure:
    """Correlation of every two bits, one matrix per modality; off the diagonal, pale is best.

    Args:
        codes: for "image" and "text" uint8 [rows, code_length / 8].
    """
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    for position, (modality, packed) in enumerate(codes.items(), 1):
        axes = figure.add_subplot(1, len(codes), position)
        dress(axes, f"Correlation, {modality} bits", "bit")
        axes.grid(visible=False)
        picture = axes.imshow(bit_correlations(packed), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    colour_bar = figure.colorbar(picture, ax=figure.axes, shrink=0.7)
    colour_bar.ax.tick_params(labelsize=8)
    return figure


def bit_correlations(packed: np.ndarray) -> np.ndarray:
    """Pearson correlations [code_length, code_length]; 0 with a bit that never changes.

    Args:
        packed: uint8 [rows, code_length / 8].
    """
    bits = unpack_codes(packed).astype(np.float64)
    centred = bits - bits.mean(axis=0)
    norms = np.linalg.norm(centred, axis=0)
    products = np.outer(norms, norms)
    correlations: np.ndarray = np.divide(centred.T @ centred, products, out=np.zeros_like(products), where=products > 0)
    return correlations
