"""The common style of all plots, and their conversion to SVG."""

import base64
import io
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

TASK_TITLES = {
    "image_to_text": "image → text",
    "text_to_image": "text → image",
    "image_to_image": "image → image",
    "text_to_text": "text → text",
}
TASK_COLOURS = {
    "image_to_text": "#1f6feb",
    "text_to_image": "#d1590b",
    "image_to_image": "#57a05b",
    "text_to_text": "#8f5bb5",
}
MODALITY_COLOURS = {"image": "#1f6feb", "text": "#d1590b"}
INK, FAINT = "#24292f", "#8c959f"

# Narrow, so that the letters are still readable when a phone shrinks the picture.
WIDTH, HEIGHT = 4.6, 3.1


def new_axes(title: str, x_label: str, y_label: str, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure with one pair of axes. No state of pyplot is touched."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    dress(axes, title, x_label, y_label)
    return figure, axes


def dress(axes: Axes, title: str, x_label: str = "", y_label: str = "") -> None:
    """Labels, light frame, light grid."""
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel(x_label, fontsize=9, color=INK)
    axes.set_ylabel(y_label, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=FAINT, labelcolor=INK)
    axes.grid(color="#d0d7de", linewidth=0.5, alpha=0.7)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)


def add_legend(axes: Axes, **options: Any) -> None:
    """A legend without a frame."""
    axes.legend(fontsize=8, frameon=False, **options)


def to_svg(figure: Figure) -> bytes:
    """The figure as an SVG file, the same bytes for the same figure."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "cmimh_tf"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def to_data_uri(figure: Figure) -> str:
    """The figure as SVG in a data URI."""
    return svg_data_uri(to_svg(figure))


def svg_data_uri(svg: bytes) -> str:
    """An SVG file as a data URI."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")
