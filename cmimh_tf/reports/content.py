"""What a report is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Item:
    """A picture or a text, as it is shown.

    Attributes:
        text: the caption, or the id where there is none.
        picture: a data URI, or None.
        is_relevant: whether it is a right answer; None for a query.
        distance: Hamming distance to the query; None for a query.
    """

    text: str
    picture: str | None = None
    is_relevant: bool | None = None
    distance: int | None = None


@dataclass(frozen=True)
class Retrieved:
    """A query and what was found first.

    Attributes:
        query: what was asked for.
        results: nearest first.
    """

    query: Item
    results: Sequence[Item]


@dataclass(frozen=True)
class ReportContent:
    """All that a report shows.

    Attributes:
        title: the heading.
        metrics: of `evaluate_model`.
        baseline: the same of the model to compare with, or None.
        blessed: whether the model is good enough.
        reasons: why, a sentence each.
        history: the terms after each epoch.
        probs: for "image" and "text" [rows, code_length].
        codes: for "image" and "text" uint8 [rows, code_length / 8].
        text_queries: texts with the pictures found.
        image_queries: pictures with the texts found.
        config: the configuration, nested.
        problems: signs of collapse or saturation.
        facts: further lines of the summary, such as the sizes of the splits.
    """

    title: str
    metrics: Mapping[str, Any]
    baseline: Mapping[str, Any] | None
    blessed: bool
    reasons: Sequence[str]
    history: Sequence[Mapping[str, float]]
    probs: Mapping[str, np.ndarray]
    codes: Mapping[str, np.ndarray]
    text_queries: Sequence[Retrieved]
    image_queries: Sequence[Retrieved]
    config: Mapping[str, Any]
    problems: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
