"""A sheet of some pairs to look at: pictures, or vectors as stripes, each over its caption and labels."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

import numpy as np

from cmimh_tf.atomic import atomic_write
from cmimh_tf.data.readers.pictures import opened_picture
from cmimh_tf.data.records import PairRecord

_COLUMNS = 4
_CELL_INCHES = (2.2, 2.5)
_LETTERS_A_LINE = 34
_MOST_LINES = 4


def draw_contact_sheet(
    path: str | os.PathLike[str], records: Sequence[PairRecord], classes: Sequence[str] | None, title: str
) -> None:
    """Writes a PNG with one cell a record.

    Args:
        path: of the PNG.
        records: at least one.
        classes: names of the labels' columns, or None.
        title: above the cells.

    Raises:
        DataError: naming the record whose picture cannot be shown.
        OSError: if the PNG cannot be written.
    """
    from matplotlib.figure import Figure

    rows = -(-len(records) // _COLUMNS)
    size = (_COLUMNS * _CELL_INCHES[0], rows * _CELL_INCHES[1] + 0.4)
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    figure.suptitle(_plain(title), fontsize=10, x=0.01, ha="left")
    for cell, axes in enumerate(figure.subplots(rows, _COLUMNS, squeeze=False).flat):
        axes.set_axis_off()
        if cell < len(records):
            record = records[cell]
            aspect = "equal" if record.image is None else "auto"
            axes.imshow(_picture(record), cmap="gray", aspect=aspect, interpolation="nearest")
            axes.set_title(_words(record, classes), fontsize=7, y=-0.03, pad=0, va="top")
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=100)


def _picture(record: PairRecord) -> np.ndarray:
    """A decoded picture, or a vector as a block of grey stripes."""
    if record.image_bytes is not None and record.image is None:
        with opened_picture(record.image_bytes, record.place) as opened:
            return np.asarray(opened.convert("RGB"))
    assert record.image is not None  # A record has one of the two.
    rows = max(1, int(np.sqrt(len(record.image))))
    return record.image[: len(record.image) // rows * rows].reshape(rows, -1)


def _words(record: PairRecord, classes: Sequence[str] | None) -> str:
    text = record.caption
    if not text:
        text = "" if record.text is None else f"text vector of {len(record.text)}"
    lines = textwrap.wrap(text, _LETTERS_A_LINE)[:_MOST_LINES]
    if record.labels is not None:
        columns = np.flatnonzero(record.labels)
        names = [classes[column] if classes else str(column) for column in columns]
        lines.append(textwrap.shorten(f"[{', '.join(names)}]", _LETTERS_A_LINE, placeholder="..."))
    return _plain("\n".join(lines))


def _plain(text: str) -> str:
    """Without what matplotlib takes for a formula, or has no letter for and would warn about."""
    return "".join(letter if ord(letter) < 0x250 else "?" for letter in text).replace("$", r"\$")
