"""FSH: codes that reproduce a similarity graph fused from both views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.baselines.centred_view import CentredView
from cmimh_tf.baselines.fusion_graph import fusion_similarity
from cmimh_tf.baselines.graph_coding import GraphCoding, graph_target
from cmimh_tf.baselines.hasher import check_pairs
from cmimh_tf.baselines.linear import LinearHash, LinearHasher
from cmimh_tf.baselines.rounds import count_rounds

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_ANCHORS = 500
DEFAULT_NEIGHBOURS = 30
DEFAULT_MAP_WEIGHT = 10.0
DEFAULT_RIDGE = 0.1
DEFAULT_ROUNDS = 20


class FSH(LinearHasher):
    """Fusion similarity hashing.

    With S the [N, M] graph of `fusion_similarity`, centred by rows and columns and scaled (`graph_target`), it
    looks for codes B [N, L] of the items, codes A [M, L] of the anchors and linear maps W of both views that

        minimise  ||S - B A'||^2 / M + lambda sum over views of (||B - X W||^2 + r ||W||^2)

    over B and A in {-1, 1}, bit by bit without relaxing them, and W in closed form. The code of a new x is the
    sign of x W. Any `code_length` is possible: the ridge r keeps the maps regular, and where there are fewer
    anchors than bits the further bits start from random combinations of the graph's leading directions.

    Reference: Liu, Ji, Wu, Huang and Zhang, "Cross-Modality Binary Code Learning via Fusion Similarity
    Hashing", CVPR 2017.

    Args:
        code_length: number of bits, a positive multiple of 8.
        num_anchors: M; all items, if there are fewer.
        num_neighbours: k of the graph.
        map_weight: lambda.
        ridge: r, relative to the mean variance of a view.
        rounds: number of alternations, at most; it ends when no code changes.
        seed: of the anchors and of the first codes.
    """

    def __init__(
        self,
        code_length: int,
        *,
        num_anchors: int = DEFAULT_ANCHORS,
        num_neighbours: int = DEFAULT_NEIGHBOURS,
        map_weight: float = DEFAULT_MAP_WEIGHT,
        ridge: float = DEFAULT_RIDGE,
        rounds: int = DEFAULT_ROUNDS,
        seed: int = 0,
    ) -> None:
        super().__init__(code_length, seed=seed)
        for name, count in (("num_anchors", num_anchors), ("num_neighbours", num_neighbours), ("rounds", rounds)):
            if count < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={count}.")
        for name, value in (("map_weight", map_weight), ("ridge", ridge)):
            if not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value}.")
        self.num_anchors = num_anchors
        self.num_neighbours = num_neighbours
        self.map_weight = map_weight
        self.ridge = ridge
        self.rounds = rounds

    def fit(self, image: Any, text: Any) -> Self:
        image, text = check_pairs(image, text)
        image_view, text_view = CentredView.fit(image), CentredView.fit(text)
        views = image_view(image), text_view(text)
        anchors = np.random.default_rng(self.seed).permutation(len(image))[: self.num_anchors]
        similarity = fusion_similarity(
            *views, anchors, num_neighbours=min(self.num_neighbours, len(anchors)), image_weight=0.5
        )
        problem = GraphCoding(
            graph_target(similarity, self.code_length), views, map_weight=self.map_weight, ridge=self.ridge
        )
        codes = problem.start(self.code_length, self.seed)
        for _ in count_rounds(self.rounds, "FSH, round"):
            previous, codes = codes, problem.step(codes)
            if np.array_equal(previous.items, codes.items):
                break
        self._image_hash = LinearHash(image_view.mean, codes.maps[0])
        self._text_hash = LinearHash(text_view.mean, codes.maps[1])
        return self
