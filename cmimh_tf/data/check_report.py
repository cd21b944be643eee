"""The findings of a check: as lines for the terminal, as JSON, and as a contact sheet of some pairs."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from cmimh_tf.data.check import Modality, SourceCheck
from cmimh_tf.data.pictures import opened_picture
from cmimh_tf.data.records import PairRecord
from cmimh_tf.files import atomic_write

_COLUMNS = 4
_CELL_INCHES = (2.2, 2.5)
_CHARACTERS_PER_LINE = 34
_MAX_LINES = 4


def to_json(found: SourceCheck) -> dict[str, Any]:
    """The findings as plain values for JSON."""
    return {
        "name": found.name,
        "records": found.num_records,
        "image": _modality_json(found.image),
        "text": _modality_json(found.text),
        "labels": {"classes": found.num_classes, "labelled": found.num_labelled, "total": found.label_total},
        "class_names": found.classes,
        "splits": found.splits,
        "num_problems": found.num_problems,
        "problems": found.problems,
        "can_train": found.can_train,
    }


def to_lines(found: SourceCheck) -> list[str]:
    """One finding per line; the last line says whether training can start."""
    lines = [
        f"{found.name}: {found.num_records:,} records",
        f"  image        {_picture_line(found.image)}",
        f"  text         {_text_line(found.text)}",
        f"  labels       {_label_line(found)}",
    ]
    if found.splits is not None:
        lines.append("  splits       " + ", ".join(f"{name} {size:,}" for name, size in found.splits.items()))
    for name, modality in (("image", found.image), ("text", found.text)):
        if modality.duplicates.count:
            lines.append(f"  duplicates   {name}: {modality.duplicates.count:,}, as {modality.duplicates.examples[0]}")
    lines += [f"  error        {problem}" for problem in found.problems]
    if found.num_problems > len(found.problems):
        lines.append(f"  error        ... and {found.num_problems - len(found.problems):,} more")
    lines.append(
        "training can start" if found.can_train else f"training cannot start: {_count(found.num_problems, 'error')}"
    )
    return lines


def draw_contact_sheet(
    path: str | os.PathLike[str], records: Sequence[PairRecord], classes: Sequence[str] | None, title: str
) -> None:
    """Writes a PNG with one cell per record: its picture, or its vector as grey stripes, above caption and labels.

    Args:
        path: the PNG.
        records: at least one record.
        classes: names of the columns of the labels, or None.
        title: heading of the sheet.

    Raises:
        DataError: naming the record whose picture cannot be displayed.
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


def _modality_json(modality: Modality) -> dict[str, Any]:
    return {
        "raw": modality.raw,
        "vectors": modality.vectors,
        "widths": {str(width): count for width, count in modality.widths.items()},
        "formats": dict(modality.formats),
        "sizes": modality.sizes,
        "duplicates": modality.duplicates.count,
        "duplicate_examples": modality.duplicates.examples,
    }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _vectors(modality: Modality) -> str:
    widths = " or ".join(f"{width:,}" for width in sorted(modality.widths))
    return f"{modality.vectors:,} vectors of width {widths}"


def _picture_line(modality: Modality) -> str:
    parts = [_vectors(modality)] if modality.vectors else []
    if modality.raw:
        formats = ", ".join(f"{count:,} {name}" for name, count in modality.formats.most_common())
        smallest, largest = (f"{width} x {height}" for width, height in modality.sizes)
        sizes = smallest if smallest == largest else f"{smallest} to {largest}"
        parts.append(f"{modality.raw:,} pictures ({formats}), {sizes}")
    return "; ".join(parts) or "none"


def _text_line(modality: Modality) -> str:
    parts = [_vectors(modality)] if modality.vectors else []
    if modality.raw:
        fewest, most = modality.sizes
        parts.append(f"{modality.raw:,} captions of {fewest} to {most} words")
    return "; ".join(parts) or "none"


def _label_line(found: SourceCheck) -> str:
    if not found.num_classes:
        return "none: only RecallOne@k and neighbour mAP can be measured"
    if not found.label_total:
        return f"{found.num_classes:,} classes, all 0: only RecallOne@k and neighbour mAP can be measured"
    mean = found.label_total / max(found.num_labelled, 1)
    without = found.num_records - found.num_labelled
    return f"{found.num_classes:,} classes, {mean:.1f} per labelled record, {without:,} records without"


def _picture(record: PairRecord) -> np.ndarray:
    """A decoded picture, or a vector as a block of grey stripes."""
    if record.image_bytes is not None and record.image is None:
        with opened_picture(record.image_bytes, record.place) as opened:
            return np.asarray(opened.convert("RGB"))
    assert record.image is not None  # A record has a picture or a vector.
    rows = max(1, int(np.sqrt(len(record.image))))
    return record.image[: len(record.image) // rows * rows].reshape(rows, -1)


def _words(record: PairRecord, classes: Sequence[str] | None) -> str:
    text = record.caption
    if not text:
        text = "" if record.text is None else f"text vector of {len(record.text)}"
    lines = textwrap.wrap(text, _CHARACTERS_PER_LINE)[:_MAX_LINES]
    if record.labels is not None:
        columns = np.flatnonzero(record.labels)
        names = [classes[column] if classes else str(column) for column in columns]
        lines.append(textwrap.shorten(f"[{', '.join(names)}]", _CHARACTERS_PER_LINE, placeholder="..."))
    return _plain("\n".join(lines))


def _plain(text: str) -> str:
    """Escapes dollar signs, which start a formula in matplotlib, and replaces characters that its font lacks."""
    return "".join(letter if ord(letter) < 0x250 else "?" for letter in text).replace("$", r"\$")
