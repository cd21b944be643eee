"""The order of results: by Hamming distance, or by how well the bits fit the real-valued query.

`asymmetric` compares the query's logits with the stored bits,

    score = sum over bits of logit * (2 bit - 1), divided by the sum of |logit|

so that a bit of which the query is sure counts more than one that is nearly undecided. `features` is the cosine between
the real-valued codes of the query and of the item, 2 mu - 1 each. With equal weights for all bits the first formula is
1 - 2 distance / L, the score of a plain Hamming ranking. Every score is between -1 and 1, and 1 is a perfect match.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

RERANKINGS = ("none", "asymmetric", "features")
# So many times more candidates than results are fetched by Hamming distance and then ordered by score.
OVERSAMPLING = 4
LEAST_CANDIDATES = 100


@dataclass(frozen=True, eq=False)
class Ranked:
    """Results of Q queries, best first.

    Attributes:
        rows: int64 [Q, K], -1 where a query has fewer results.
        distances: int32 [Q, K], Hamming distances.
        scores: float32 [Q, K].
        sides: uint8 [Q, K], 0 for results found by their image code and 1 for those found by their text code.
    """

    rows: np.ndarray
    distances: np.ndarray
    scores: np.ndarray
    sides: np.ndarray

    def first(self, top: int | None) -> Ranked:
        """The first `top` results, without columns that hold no result."""
        longest = int((self.rows >= 0).sum(axis=1).max(initial=0))
        end = longest if top is None else min(top, longest)
        return Ranked(*(array[:, :end] for array in (self.rows, self.distances, self.scores, self.sides)))

    def scored(self, scores: np.ndarray) -> Ranked:
        """The results with other scores."""
        return replace(self, scores=scores)

    def without(self, rows: np.ndarray) -> Ranked:
        """The results without one row per query, int64 [Q]."""
        kept = replace(self, rows=np.where(self.rows == rows[:, np.newaxis], -1, self.rows))
        return kept.ordered(np.argsort(kept.rows < 0, axis=1, kind="stable"))

    @staticmethod
    def stacked(blocks: list[Ranked]) -> Ranked:
        """Blocks of queries under each other, filled up to the same number of results."""
        if len(blocks) == 1:
            return blocks[0]
        width = max(block.rows.shape[1] for block in blocks)

        def stack(name: str, missing: int) -> np.ndarray:
            arrays = [getattr(block, name) for block in blocks]
            return np.concatenate(
                [np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=missing) for array in arrays]
            )

        return Ranked(stack("rows", -1), stack("distances", -1), stack("scores", 0), stack("sides", 0))

    def ordered(self, order: np.ndarray) -> Ranked:
        """The results in another order, int64 [Q, K]."""
        arrays = (self.rows, self.distances, self.scores, self.sides)
        return Ranked(*(np.take_along_axis(array, order, axis=1) for array in arrays))


def num_candidates(top: int | None) -> int | None:
    """How many results to fetch for re-ranking."""
    return None if top is None else max(OVERSAMPLING * top, LEAST_CANDIDATES)


def hamming_scores(distances: np.ndarray, code_length: int) -> np.ndarray:
    """float32, 1 - 2 distance / L."""
    return (1 - 2 * distances / code_length).astype(np.float32)


def asymmetric_scores(logits: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The query's logits against stored bits.

    Args:
        logits: float [Q, L].
        codes: uint8 [Q, K, L/8], the candidates of each query.

    Returns:
        float32 [Q, K].
    """
    logits = np.asarray(logits, np.float32)
    num_bytes = codes.shape[2]
    # Signs of the bits of every byte value: tables[q, b, v] is what byte b adds if its value is v.
    values = np.arange(256, dtype=np.uint8)[:, np.newaxis]
    signs = 2 * np.unpackbits(values, axis=1, bitorder="little").astype(np.float32) - 1
    tables = logits.reshape(len(logits), num_bytes, 8) @ signs.T
    scores = np.zeros(codes.shape[:2], np.float32)
    for position in range(num_bytes):
        scores += np.take_along_axis(tables[:, position], codes[:, :, position].astype(np.intp), axis=1)
    totals = np.abs(logits).sum(axis=1, keepdims=True)
    return scores / np.where(totals > 0, totals, 1)


def feature_scores(logits: np.ndarray, features: np.ndarray) -> np.ndarray:
    """The cosine between real-valued codes.

    Args:
        logits: float [Q, L], of the queries.
        features: float16 [Q, K, L], `real_valued_codes` of the candidates.

    Returns:
        float32 [Q, K].
    """
    queries = real_valued_codes(logits).astype(np.float32)
    items = features.astype(np.float32)
    products = np.einsum("ql,qkl->qk", queries, items)
    norms = np.linalg.norm(queries, axis=1)[:, np.newaxis] * np.linalg.norm(items, axis=2)
    return products / np.where(norms > 0, norms, 1)


def real_valued_codes(logits: np.ndarray) -> np.ndarray:
    """2 mu - 1 = tanh(logit / 2) as float16: what an index that keeps features stores."""
    return np.tanh(np.asarray(logits, np.float32) / 2).astype(np.float16)


def by_score(ranked: Ranked) -> Ranked:
    """Best score first; equal scores keep their order, which is by distance and then by row."""
    return ranked.ordered(np.argsort(np.where(ranked.rows < 0, np.inf, -ranked.scores), axis=1, kind="stable"))


def merge_sides(images: Ranked, texts: Ranked, reranked: bool) -> Ranked:
    """Results found by their image codes and by their text codes; each item once, where it is better.

    Args:
        images, texts: of the same queries.
        reranked: whether to order by score, not by distance.
    """
    names = ("rows", "distances", "scores", "sides")
    both = Ranked(*(np.concatenate([getattr(images, name), getattr(texts, name)], axis=1) for name in names))
    missing = both.rows < 0
    # By distance, then by row, and an image before the text of the same item.
    keys = np.where(missing, np.iinfo(np.int64).max, (both.distances.astype(np.int64) << 40) | both.rows)
    both = both.ordered(np.argsort(keys, axis=1, kind="stable"))
    if reranked:
        both = by_score(both)
    by_row = np.argsort(both.rows, axis=1, kind="stable")
    sorted_rows = np.take_along_axis(both.rows, by_row, axis=1)
    again = np.zeros(sorted_rows.shape, bool)
    again[:, 1:] = sorted_rows[:, 1:] == sorted_rows[:, :-1]
    repeated = np.empty_like(again)
    np.put_along_axis(repeated, by_row, again, axis=1)
    once = Ranked(np.where(repeated, -1, both.rows), both.distances, both.scores, both.sides)
    return once.ordered(np.argsort(once.rows < 0, axis=1, kind="stable"))
