"""Retrieval ranked by logits, on values derived by hand and against Hamming where both must agree."""

import numpy as np
import pytest

from cmimh_tf.codes import pack_bits
from cmimh_tf.metrics.asymmetric import asymmetric_pair_ranks, evaluate_asymmetric
from cmimh_tf.metrics.evaluation import CodedItems, evaluate_retrieval


def coded(bits, labels=None):
    codes = pack_bits(bits)
    return CodedItems(codes, codes, labels)


def test_equally_sure_logits_measure_the_same_as_hamming_distance():
    random = np.random.default_rng(0)
    query_bits, bits = random.integers(0, 2, (40, 16)), random.integers(0, 2, (200, 16))
    query = coded(query_bits, random.integers(0, 2, (40, 3)))
    database = coded(bits, random.integers(0, 2, (200, 3)))
    logits = {side: np.where(query_bits, 2.0, -2.0) for side in ("image", "text")}
    plain = evaluate_retrieval(query, database, seed=3)
    ranked = evaluate_asymmetric(query, logits, database, seed=3)
    assert ranked["rerank"] == "asymmetric"
    for key in ("map", "map_at_50", "map_at_1000", "recall_one_at_1", "recall_one_at_10"):
        assert ranked[key] == pytest.approx(plain[key])
    assert ranked["precision_at_k"]["k"] == plain["precision_at_k"]["k"]
    assert ranked["precision_at_k"]["text_to_image"] == pytest.approx(plain["precision_at_k"]["text_to_image"])


def test_the_surest_bit_decides():
    # Both items differ from the query in one bit; the first in the bit of which the query is sure.
    bits = np.zeros((2, 8), int)
    bits[0, 0] = bits[1, 1] = 1
    database = coded(bits, np.array([[0, 1], [1, 0]]))
    query = coded(np.zeros((1, 8), int), np.array([[1, 0]]))
    logits = np.full((1, 8), -1.0)
    logits[0, 0] = -5.0
    result = evaluate_asymmetric(query, {"image": logits, "text": logits}, database, map_at=(1,), precision_at=(1, 2))
    assert result["map_at_1"] == dict.fromkeys(result["map_at_1"], 1.0)
    assert result["precision_at_k"]["image_to_text"] == [1.0, 0.5]
    swapped = evaluate_asymmetric(
        query, {"image": logits[:, ::-1], "text": logits}, coded(bits[:, ::-1], database.labels), map_at=(1,)
    )
    assert swapped["map_at_1"]["image_to_text"] == 1.0


def test_pair_ranks_count_better_scores_and_earlier_ties():
    codes = pack_bits(np.eye(8, dtype=int)[[0, 1, 2, 2]])
    logits = np.zeros((4, 8))
    logits[:, 0] = 3.0
    ranks = asymmetric_pair_ranks(logits, codes, seed=0)
    assert ranks[0] == 0
    assert sorted(ranks[1:]) == [1, 2, 3]


def test_without_labels_only_recall_is_measured():
    items = coded(np.eye(8, dtype=int))
    result = evaluate_asymmetric(items, {side: 2.0 * np.eye(8) - 1 for side in ("image", "text")}, items)
    assert set(result) == {"rerank", "recall_one_at_1", "recall_one_at_5", "recall_one_at_10"}
    assert result["recall_one_at_1"] == {"image_to_text": 1.0, "text_to_image": 1.0}


def test_logits_of_another_shape_are_rejected():
    items = coded(np.eye(8, dtype=int))
    with pytest.raises(ValueError, match=r"`query_logits\['image'\]` must have shape \[8, 8\]. Received: \[8, 4\]"):
        evaluate_asymmetric(items, {"image": np.zeros((8, 4)), "text": np.zeros((8, 8))}, items)
