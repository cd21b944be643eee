"""Records that hold vectors as `PairedData`, for the commands that train on vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from cmimh_tf.data.paired import PairedData
from cmimh_tf.data.records import DataError, PairReader


def load_vectors(reader: PairReader) -> PairedData:
    """All pairs of a source of vectors. An official query set becomes `is_query`.

    A vector that is all 0, such as the tags of a picture without one of the common tags, gets the smallest trace:
    `PairedData` refuses zero rows, which are missing data elsewhere.

    Raises:
        DataError: naming the first record that has no vector, or one of another width.
    """
    columns: dict[str, list[Any]] = {"image": [], "text": [], "labels": [], "ids": [], "captions": []}
    widths: dict[str, int] = {}
    for record in reader:
        for name in ("image", "text"):
            vector = getattr(record, name)
            if vector is None:
                raise DataError(
                    f"{record.place}: `{name}` must be a vector to train on. Received: a picture or caption. Make "
                    "vectors first (python -m cmimh_tf.features), or run the pipeline: python pipeline/run_local.py "
                    "--data PATH."
                )
            if len(vector) != widths.setdefault(name, len(vector)):
                raise DataError(
                    f"{record.place}: `{name}` must have {widths[name]} values, as in the first record. Received: "
                    f"{len(vector)}."
                )
            columns[name].append(_not_all_zero(vector))
        columns["ids"].append(record.id)
        columns["captions"].append(record.caption or "")
        if record.labels is not None:
            columns["labels"].append(record.labels)
    index = reader.index()
    is_query = index.is_query
    if index.splits is not None:
        is_query = np.zeros(len(index.ids), bool)
        is_query[index.splits.query] = True
        is_query = is_query[index.is_used()]
    return PairedData(
        image=np.stack(columns["image"]),
        text=np.stack(columns["text"]),
        labels=np.stack(columns["labels"]) if columns["labels"] else None,
        ids=np.array(columns["ids"]),
        captions=np.array(columns["captions"]) if any(columns["captions"]) else None,
        is_query=is_query,
        classes=np.array(index.classes) if index.classes and columns["labels"] else None,
    )


def _not_all_zero(vector: np.ndarray) -> np.ndarray:
    if vector.any():
        return vector
    traced = vector.copy()
    traced[0] = np.finfo(np.float32).tiny
    return traced
