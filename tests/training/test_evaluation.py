import json

import numpy as np

from cmimh_tf.config import get_preset
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.models.cmimh import CMIMH
from cmimh_tf.training.evaluation import evaluate_model


def test_measures_of_an_untrained_model_are_ready_for_json():
    data = make_synthetic(60, seed=0)
    model = CMIMH(get_preset("smoke"), data.image.shape[1], data.text.shape[1])
    metrics = evaluate_model(model, data.take(np.arange(10)), data.take(np.arange(10, 60)))
    assert set(metrics["code_statistics"]["text"]) == {
        "correlation_mse",
        "bit_balance",
        "constant_bits",
        "saturated_share",
        "total_correlation",
    }
    json.dumps(metrics, allow_nan=False)


def test_codes_that_never_change_have_no_correlation():
    data = make_synthetic(40, seed=0)
    model = CMIMH(get_preset("smoke"), data.image.shape[1], data.text.shape[1])
    output = model.encoders["image"].denses[-1]
    output.set_weights([np.zeros_like(weights) + position for position, weights in enumerate(output.get_weights())])
    metrics = evaluate_model(model, data.take(np.arange(10)), data.take(np.arange(10, 40)))
    assert metrics["code_statistics"]["image"]["correlation_mse"] is None
    assert metrics["code_statistics"]["image"]["constant_bits"] == 16
    json.dumps(metrics, allow_nan=False)
