import json

import numpy as np

from cmimh_tf.command_line import metrics_table
from cmimh_tf.config import get_preset
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.metrics.asymmetric import evaluate_asymmetric
from cmimh_tf.model import CMIMH
from cmimh_tf.training.evaluation import evaluate_model, hash_pairs


def test_measures_of_an_untrained_model_are_ready_for_json():
    data = make_synthetic(60, seed=0)
    model = CMIMH(config=get_preset("smoke"), image_units=data.image.shape[1], text_units=data.text.shape[1])
    metrics = evaluate_model(model, data.take(np.arange(10)), data.take(np.arange(10, 60)))
    assert set(metrics["code_statistics"]["text"]) == {
        "correlation_mse",
        "bit_balance",
        "constant_bits",
        "saturated_share",
        "total_correlation",
    }
    json.dumps(metrics, allow_nan=False)


def test_asymmetric_ranking_is_measured_beside_hamming_distance_if_asked_for():
    data = make_synthetic(120, seed=0)
    model = CMIMH(config=get_preset("smoke"), image_units=data.image.shape[1], text_units=data.text.shape[1])
    query, database = data.take(np.arange(30)), data.take(np.arange(30, 120))
    plain = evaluate_model(model, query, database)
    both = evaluate_model(model, query, database, rerank="asymmetric")
    ranked = both.pop("asymmetric")
    assert both == plain
    # The logits are those of the query's own modality: exchanged, image_to_text would rank as text_to_image.
    logits = {name: np.asarray(model.code_logits(name, getattr(query, name))) for name in ("image", "text")}
    expected = evaluate_asymmetric(hash_pairs(model, query), logits, hash_pairs(model, database))
    assert ranked == expected
    assert ranked["map_at_1000"] != plain["map_at_1000"]
    lines = metrics_table({**plain, "asymmetric": ranked}).splitlines()
    assert lines[3].split() == ["mAP@1000", *(f"{100 * value:.1f}" for value in plain["map_at_1000"].values())]
    assert lines[4].split() == ["asymmetric", *(f"{100 * value:.1f}" for value in ranked["map_at_1000"].values())]


def test_codes_that_never_change_have_no_correlation():
    data = make_synthetic(40, seed=0)
    model = CMIMH(config=get_preset("smoke"), image_units=data.image.shape[1], text_units=data.text.shape[1])
    output = model.encoders["image"].denses[-1]
    output.set_weights([np.zeros_like(weights) + position for position, weights in enumerate(output.get_weights())])
    metrics = evaluate_model(model, data.take(np.arange(10)), data.take(np.arange(10, 40)))
    assert metrics["code_statistics"]["image"]["correlation_mse"] is None
    assert metrics["code_statistics"]["image"]["constant_bits"] == 16
    json.dumps(metrics, allow_nan=False)
