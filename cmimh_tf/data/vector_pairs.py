"""Records that hold vectors as `PairedData`, for the commands that train on vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cmimh_tf.data.paired import PairedData
from cmimh_tf.data.records import DataError, PairReader, PairRecord, RecordIndex

# NumPy gives every string of an array the room of the longest, four bytes a character.
MOST_CAPTION_CHARACTERS = 1000


def load_vectors(reader: PairReader) -> PairedData:
    """All pairs of a source of vectors. Official splits become `is_query` and `is_train`.

    A vector that is all 0, such as the tags of a picture without one of the common tags, gets the smallest trace:
    `PairedData` refuses zero rows, which are missing data elsewhere. Captions are cut as by `shown_caption`.

    Raises:
        DataError: naming the first record that has no vector, or one of another width.
    """
    columns: dict[str, list[Any]] = {"image": [], "text": [], "labels": [], "ids": [], "captions": []}
    for record in checked_vectors(reader):
        columns["image"].append(record.image)
        columns["text"].append(record.text)
        columns["ids"].append(record.id)
        columns["captions"].append(shown_caption(record))
        if record.labels is not None:
            columns["labels"].append(record.labels)
    index = reader.index()
    is_query, is_train = official_marks(index)
    return PairedData(
        image=with_trace(np.stack(columns["image"])),
        text=with_trace(np.stack(columns["text"])),
        labels=np.stack(columns["labels"]) if columns["labels"] else None,
        ids=np.array(columns["ids"]),
        captions=np.array(columns["captions"]) if any(columns["captions"]) else None,
        is_query=is_query,
        classes=np.array(index.classes) if index.classes and columns["labels"] else None,
        is_train=is_train,
    )


def checked_vectors(reader: PairReader) -> Iterator[PairRecord]:
    """Every pair once, as `iter(reader)` gives them, with vectors of one width.

    Raises:
        DataError: naming the first record that has no vector, or one of another width.
    """
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
        yield record


def shown_caption(record: PairRecord) -> str:
    """The first `MOST_CAPTION_CHARACTERS` of the caption, or "": beside a vector it is only there to be shown."""
    return (record.caption or "")[:MOST_CAPTION_CHARACTERS]


def official_marks(index: RecordIndex) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(is_query, is_train) of `PairedData`, bool [number of used rows] each, or None for what is not official."""
    if index.splits is None:
        return index.is_query, None
    marks = np.zeros((2, len(index.ids)), bool)
    marks[0, index.splits.query] = True
    marks[1, index.splits.train] = True
    is_query, is_train = marks[:, index.is_used()]
    return is_query, is_train


def with_trace(vectors: np.ndarray) -> np.ndarray:
    """float32 [N, D], a row that is all 0 with the smallest trace; the others, and the argument, as they are."""
    empty = ~vectors.any(axis=1)
    if not empty.any():
        return vectors
    traced = vectors.astype(np.float32)
    traced[empty, 0] = np.finfo(np.float32).tiny
    return traced
