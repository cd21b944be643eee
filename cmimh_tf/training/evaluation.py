"""All measures of a trained model on labelled or unlabelled pairs."""

from typing import Any

import numpy as np
import tensorflow as tf

from cmimh_tf.data.pairs import PairedData
from cmimh_tf.metrics.asymmetric import evaluate_asymmetric
from cmimh_tf.metrics.code_profile import PROFILE_ROWS, profile_codes
from cmimh_tf.metrics.code_statistics import (
    bit_balance,
    constant_bits,
    correlation_mse,
    saturated_share,
    total_correlation_estimate,
)
from cmimh_tf.metrics.evaluation import CodedItems, evaluate_retrieval
from cmimh_tf.metrics.neighbour_map import estimate_quality
from cmimh_tf.model import CMIMH, MODALITIES
from cmimh_tf.stored_rows import Rows, take_rows

_STATISTICS_ROWS = 10_000


def evaluate_model(
    model: CMIMH, query: PairedData, database: PairedData, *, seed: int = 0, rerank: str = "none"
) -> dict[str, Any]:
    """Retrieval measures in four tasks, and statistics of the codes.

    Args:
        model: a trained model.
        query: the queries.
        database: the pairs to search, disjoint from the queries.
        seed: of the shuffle that breaks ties.
        rerank: "asymmetric" also ranks by the logits of the queries; "none" by Hamming distance only.

    Returns:
        JSON-ready; see `evaluate_retrieval`, with the result of `estimate_quality` and "code_statistics" of the
        database added, and with "asymmetric", the result of `evaluate_asymmetric`, if that is asked for.
    """
    coded_query, coded_database = hash_pairs(model, query), hash_pairs(model, database)
    metrics = evaluate_retrieval(coded_query, coded_database, seed=seed)
    metrics |= estimate_quality(coded_query, coded_database, features_of(query), features_of(database), seed=seed)
    if rerank == "asymmetric":
        logits = {name: np.asarray(model.code_logits(name, np.asarray(getattr(query, name)))) for name in MODALITIES}
        metrics["asymmetric"] = evaluate_asymmetric(coded_query, logits, coded_database, seed=seed)
    metrics["code_length"] = model.config.code_length
    metrics["code_statistics"] = code_statistics(model, database, coded_database)
    return metrics


def features_of(data: PairedData) -> dict[str, Rows]:
    """The features of "image" and "text", for `estimate_quality`."""
    return {name: getattr(data, name) for name in MODALITIES}


def hash_pairs(model: CMIMH, data: PairedData) -> CodedItems:
    """Both modalities of `data` as codes."""
    labels = None if data.labels is None else np.asarray(data.labels)
    return CodedItems(model.hash_images(data.image), model.hash_texts(data.text), labels)


def profile_pairs(model: CMIMH, data: PairedData, seed: int = 0) -> dict[str, Any]:
    """The profile of a model's codes on some pairs, see `profile_codes`.

    Args:
        model: a trained model.
        data: the pairs. To be compared with other data, they must not have been trained on.
        seed: of the sample, if there are more than 2,000 pairs.
    """
    rows = np.sort(np.random.default_rng([seed, 5]).permutation(len(data))[:PROFILE_ROWS])
    features = {name: np.asarray(take_rows(getattr(data, name), rows), np.float32) for name in MODALITIES}
    inputs = {name: np.asarray(model.scalers[name](values)) for name, values in features.items()}
    probs = {name: np.asarray(tf.sigmoid(model.code_logits(name, values))) for name, values in features.items()}
    return profile_codes(inputs, probs, seed)


def code_statistics(model: CMIMH, data: PairedData, codes: CodedItems) -> dict[str, dict[str, float | None]]:
    """How the bits of each modality are distributed; the last two over the first 10,000 rows.

    Args:
        model: the model that made the codes.
        data: the hashed pairs.
        codes: their codes.

    Returns:
        For "image" and "text": correlation_mse (None when fewer than two bits vary), bit_balance, constant_bits,
        saturated_share, and, when the model has discriminators, total_correlation.
    """
    probs = model({"image": data.image[:_STATISTICS_ROWS], "text": data.text[:_STATISTICS_ROWS]})
    statistics: dict[str, dict[str, float | None]] = {}
    for modality in MODALITIES:
        packed = codes.codes(modality)
        modality_probs: tf.Tensor = probs[f"{modality}_probs"]
        statistics[modality] = {
            "correlation_mse": _finite_or_none(correlation_mse(packed)),
            "bit_balance": bit_balance(packed),
            "constant_bits": constant_bits(packed),
            "saturated_share": saturated_share(modality_probs.numpy()),
        }
        if model.discriminators:
            logits = np.asarray(model.discriminators[modality](modality_probs))
            statistics[modality]["total_correlation"] = total_correlation_estimate(logits)
    return statistics


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
