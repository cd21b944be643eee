"""What a check found, as lines for the screen and as JSON."""

from __future__ import annotations

from typing import Any

from cmimh_tf.data.source_check import Modality, SourceCheck


def to_json(found: SourceCheck) -> dict[str, Any]:
    """Plain values only."""
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
    """One finding a line; the last says whether training could start."""
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
    lines += [f"  wrong        {problem}" for problem in found.problems]
    if found.num_problems > len(found.problems):
        lines.append(f"  wrong        ... and {found.num_problems - len(found.problems):,} more")
    lines.append("training can start" if found.can_train else f"training cannot start: {found.num_problems:,} wrong")
    return lines


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
        return "none: only RecallOne@k can be measured"
    mean = found.label_total / max(found.num_labelled, 1)
    without = found.num_records - found.num_labelled
    return f"{found.num_classes:,} classes, {mean:.1f} a labelled record, {without:,} records without"
