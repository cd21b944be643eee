"""The plots hold the numbers that they are given."""

import numpy as np
import pytest

from cmimh_tf.codes import pack_bits
from cmimh_tf.metrics.evaluation import TASKS
from cmimh_tf.reports import plots
from cmimh_tf.reports.plot_style import to_data_uri


def _metrics():
    curve = {"precision": [None, 0.75, 0.5], "recall": [None, 0.25, 1.0]}
    return {
        "chance": 0.125,
        "precision_at_k": {"k": [1, 10], **{task: [0.9, 0.4] for task in TASKS}},
        "precision_recall": {"radius": [0, 1, 2], **dict.fromkeys(TASKS, curve)},
    }


def test_precision_at_k_has_a_line_for_each_task_and_chance():
    (axes,) = plots.precision_at_k_plot(_metrics()).axes
    assert [line.get_label() for line in axes.lines][-1] == "chance"
    assert len(axes.lines) == 5
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[1, 0.9], [10, 0.4]])


def test_precision_recall_leaves_out_undefined_points():
    (axes,) = plots.precision_recall_plot(_metrics()).axes
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[0.25, 0.75], [1, 0.5]])


def test_training_plot_has_one_panel_a_term():
    history = [{"epoch": epoch, "loss": 3.0 - epoch, "balance": 1.0} for epoch in (1, 2)]
    figure = plots.training_plot(history)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["loss", "balance"]
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xydata(), [[1, 2], [2, 1]])


def test_balance_bars_are_the_shares_of_ones():
    bits = np.array([[1, 0, 0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1, 1, 1]])
    (axes,) = plots.balance_plot({"image": pack_bits(bits), "text": pack_bits(bits)}).axes
    heights = [bar.get_height() for bar in axes.patches[:8]]
    assert heights == pytest.approx([1, 0.5, 0, 0, 1, 1, 1, 1])


def test_bit_correlations_by_hand():
    # Bits 0 and 1 agree, bit 2 is the opposite, bit 3 is uncorrelated with them, the others never change.
    bits = np.array([[1, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0]])
    correlations = plots.bit_correlations(pack_bits(np.pad(bits, [(0, 0), (0, 4)])))
    np.testing.assert_allclose(correlations[0], [1, 1, -1, 0, 0, 0, 0, 0], atol=1e-12)


def test_histogram_shares_sum_to_one():
    probs = np.random.default_rng(0).random((50, 8))
    (axes,) = plots.probs_plot({"image": probs, "text": probs}).axes
    assert axes.patches[0].get_data().values.sum() == pytest.approx(1)


def test_data_uri_is_the_same_for_the_same_figure():
    uris = {to_data_uri(plots.precision_at_k_plot(_metrics())) for _ in range(2)}
    assert len(uris) == 1
    assert uris.pop().startswith("data:image/svg+xml;base64,")
