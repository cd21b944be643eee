"""From queries to ranked results, inside one view of an index."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.search.engines.interface import Header, UnknownItem, View
from cmimh_tf.search.filters import Condition, bind, parse_filter
from cmimh_tf.search.items import SIDES
from cmimh_tf.search.ranking import (
    RERANKINGS,
    Ranked,
    asymmetric_scores,
    by_score,
    feature_scores,
    hamming_scores,
    merge_sides,
    num_candidates,
)
from cmimh_tf.search.results import Hit

FINDS = ("images", "texts", "both")
KINDS = ("text", "image", "id", "code")
# Queries that are ranked together: re-ranking holds the codes of all their candidates.
_QUERIES_AT_ONCE = 256


@dataclass(frozen=True)
class Query:
    """One thing to search with.

    Attributes:
        kind: "text", "image", "id" or "code".
        value: a caption or its vector; a path, the bytes of a picture or its vector; an id; uint8 [L/8].
        side: for an id, which of the item's codes to search with; None takes the image if there is one.
    """

    kind: str
    value: Any
    side: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"`kind` must be one of {', '.join(KINDS)}. Received: {self.kind!r}.")
        if self.side not in (None, *SIDES):
            raise ValueError(f"`side` must be image or text. Received: {self.side!r}.")


@dataclass(frozen=True)
class Options:
    """How to search; the arguments of `Index.search`.

    Raises:
        ValueError, TypeError: for a wrong value.
    """

    find: str | None = None
    top: int | None = 10
    radius: int | None = None
    where: str | None = None
    rerank: str = "asymmetric"
    exact: bool = False

    def __post_init__(self) -> None:
        if self.find not in (None, *FINDS):
            raise ValueError(f"`find` must be one of {', '.join(FINDS)}. Received: {self.find!r}.")
        if self.rerank not in RERANKINGS:
            raise ValueError(f"`rerank` must be one of {', '.join(RERANKINGS)}. Received: {self.rerank!r}.")
        if self.top is None and self.radius is None:
            raise ValueError("`top` must be given, or `radius`. Received: neither.")
        for name, value, least in (("top", self.top, 1), ("radius", self.radius, 0)):
            if value is None:
                continue
            try:
                number = operator.index(value)
            except TypeError as error:
                raise TypeError(f"`{name}` must be an integer. Received: {value!r}.") from error
            if number < least or isinstance(value, bool):
                raise ValueError(f"`{name}` must be at least {least}. Received: {value}.")
        if self.where is not None:
            parse_filter(self.where)

    def condition(self, header: Header) -> Condition | None:
        """The filter, bound to the columns of an index.

        Raises:
            FilterError: for an unknown column or a value of the wrong kind.
            ValueError: if the index lacks the features to rank by.
        """
        if self.rerank == "features" and not header.keeps_features:
            raise ValueError(
                "`rerank` must not be 'features' for an index without features. Build it with --keep-features."
            )
        return None if self.where is None else bind(parse_filter(self.where), header.columns)

    def sides(self, kind: str, view: View) -> tuple[str, ...]:
        """Which codes queries of a kind are compared with: by default a text finds images, and an image texts."""
        if self.find is not None:
            return {"images": ("image",), "texts": ("text",), "both": SIDES}[self.find]
        counts = view.counts()
        if kind == "text" and counts.images:
            return ("image",)
        if kind == "image" and counts.texts:
            return ("text",)
        return SIDES


def check_code_width(codes: np.ndarray, header: Header) -> None:
    """Raises ValueError if codes have another number of bits than an index."""
    if codes.shape[1] * 8 != header.code_length:
        raise ValueError(
            f"`codes` must have {header.code_length} bits, {header.code_length // 8} bytes, as the index has. "
            f"Received: codes.shape={codes.shape}."
        )


def stored_queries(view: View, queries: Sequence[Query]) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Codes, logits (if features are kept) and rows of items that are queries.

    Raises:
        UnknownItem: for an id that is not in the index.
        ValueError: if an item lacks the side to search with.
    """
    names = [query.value for query in queries]
    rows = view.rows_of(names)
    if (rows < 0).any():
        missing = names[int(np.argmax(rows < 0))]
        raise UnknownItem(f"`id` must be the id of an item. Received: {missing!r}, which is not in the index.")
    code_length = view.header.code_length
    codes = np.empty((len(rows), code_length // 8), np.uint8)
    logits = np.empty((len(rows), code_length), np.float32) if view.header.keeps_features else None
    has_image = view.has_side("image", rows)
    uses_image = np.array([query.side == "image" for query in queries], bool)
    uses_image |= has_image & np.array([query.side is None for query in queries], bool)
    for side, of_side in (("image", uses_image), ("text", ~uses_image)):
        chosen = rows[of_side]
        if not len(chosen):
            continue
        has_side = view.has_side(side, chosen)
        if not has_side.all():
            missing = view.ids(chosen[~has_side][:1])[0]
            raise ValueError(f"`side` must be one that the item has. Received: {side} for id {missing!r}.")
        codes[of_side] = view.codes(side, chosen)
        if logits is not None:
            real = np.clip(view.features(side, chosen).astype(np.float32), -0.999, 0.999)
            logits[of_side] = 2 * np.arctanh(real)
    return codes, logits, rows


def rank(
    view: View,
    sides: Sequence[str],
    codes: np.ndarray,
    logits: np.ndarray | None,
    options: Options,
    own: np.ndarray | None = None,
) -> Ranked:
    """The results of queries, best first.

    Args:
        view: of the index.
        sides: which codes are searched.
        codes: uint8 [Q, L/8].
        logits: float [Q, L], or None to rank by Hamming distance.
        options: how to search.
        own: int64 [Q], a row that is no result of each query, or None.
    """
    where = options.condition(view.header)
    if options.rerank == "none":
        logits = None
    if logits is None and own is None and len(sides) == 1:
        # The usual case of large batches: only the results are held.
        return _nearest(view, sides[0], codes, options.top, where, options).first(options.top)
    wanted = options.top if options.top is None or own is None else options.top + 1
    fetched = wanted if logits is None else num_candidates(wanted)
    blocks = []
    for start in range(0, len(codes), _QUERIES_AT_ONCE):
        block = slice(start, start + _QUERIES_AT_ONCE)
        parts = []
        for side in sides:
            part = _nearest(view, side, codes[block], fetched, where, options)
            if own is not None:
                part = part.without(own[block])
            if logits is not None:
                part = by_score(part.scored(_scores(view, side, part.rows, logits[block], options.rerank)))
            parts.append(part)
        merged = parts[0] if len(parts) == 1 else merge_sides(parts[0], parts[1], logits is not None)
        blocks.append(merged.first(options.top))
    return Ranked.stacked(blocks)


def _nearest(
    view: View, side: str, codes: np.ndarray, top: int | None, where: Condition | None, options: Options
) -> Ranked:
    rows, distances = view.nearest(side, codes, top, where=where, radius=options.radius, exact=options.exact)
    scores = hamming_scores(distances, view.header.code_length)
    return Ranked(rows, distances, scores, np.full(rows.shape, SIDES.index(side), np.uint8))


def _scores(view: View, side: str, rows: np.ndarray, logits: np.ndarray, rerank: str) -> np.ndarray:
    known = rows >= 0
    if rerank == "features":
        features = np.zeros((*rows.shape, view.header.code_length), np.float16)
        features[known] = view.features(side, rows[known])
        return feature_scores(logits, features)
    codes = np.zeros((*rows.shape, view.header.code_length // 8), np.uint8)
    codes[known] = view.codes(side, rows[known])
    return asymmetric_scores(logits, codes)


def hits_of(view: View, ranked: Ranked) -> list[list[Hit]]:
    """What is stored about the results of each query."""
    known = ranked.rows >= 0
    items = {item.row: item for item in view.items(np.unique(ranked.rows[known]))}
    codes: dict[tuple[int, int], bytes] = {}
    for number, side in enumerate(SIDES):
        rows = np.unique(ranked.rows[known & (ranked.sides == number)])
        for row, code in zip(rows, view.codes(side, rows), strict=True):
            codes[int(row), number] = code.tobytes()
    hits = []
    for query in range(len(ranked.rows)):
        found = []
        for column in np.flatnonzero(known[query]):
            row, side_number = int(ranked.rows[query, column]), int(ranked.sides[query, column])
            item = items[row]
            found.append(
                Hit(
                    item.id,
                    int(ranked.distances[query, column]),
                    float(ranked.scores[query, column]),
                    SIDES[side_number],
                    item.caption,
                    item.picture,
                    item.metadata,
                    codes[row, side_number],
                )
            )
        hits.append(found)
    return hits
