"""Measures of codes and of retrieval by Hamming distance. See `ranking` for the protocol that they share."""

from cmimh_tf.metrics.code_statistics import (
    bit_balance,
    constant_bits,
    correlation_mse,
    saturated_share,
    total_correlation_estimate,
)
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, TASKS, CodedItems, evaluate_retrieval
from cmimh_tf.metrics.retrieval import (
    PrecisionRecallCurve,
    mean_average_precision,
    precision_at_k,
    precision_recall_curve,
    ranked_neighbours,
    recall_one_at_k,
)

__all__ = [
    "CROSS_MODAL_TASKS",
    "TASKS",
    "CodedItems",
    "PrecisionRecallCurve",
    "bit_balance",
    "constant_bits",
    "correlation_mse",
    "evaluate_retrieval",
    "mean_average_precision",
    "precision_at_k",
    "precision_recall_curve",
    "ranked_neighbours",
    "recall_one_at_k",
    "saturated_share",
    "total_correlation_estimate",
]
