import io

import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.overrides import override
from cmimh_tf.training.health import diagnose
from cmimh_tf.training.trainer import train_model

HEALTHY = np.tile([[0.1, 0.9], [0.9, 0.1]], (8, 4))

SATURATED = np.where(HEALTHY > 0.5, 0.9933072, 0.0066929)


def problems(image=HEALTHY, text=HEALTHY, mutual_information=1.0):
    return diagnose(image, text, mutual_information, 5.0)


def test_healthy_codes_have_no_problem():
    assert problems() == []
    assert problems(mutual_information=None) == []
    assert problems(SATURATED, SATURATED) == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mutual_information": 0.001}, "collapse: the mutual information bound is 0.001"),
        ({"image": 0.5 + 0.02 * (HEALTHY - 0.5)}, "collapse: 100% of the image probs are stuck near 0.5"),
        ({"text": SATURATED, "mutual_information": 0.3}, "saturation: 100% of the text probs are stuck at the clip"),
        ({"image": np.where(np.arange(8) == 3, 0.9, HEALTHY)}, r"dead bits: 1 of 8 image bits never change \(bit 3\)"),
    ],
)
def test_each_problem_is_found_alone(values, message):
    with pytest.raises(AssertionError, match=message):
        assert not problems(**values), "\n".join(problems(**values))
    assert len(problems(**values)) == 1


def test_advice_names_a_configuration_key():
    for problem in problems(image=np.full((4, 8), 0.5), mutual_information=0.0):
        assert "network." in problem or "loss." in problem


def test_a_collapsed_training_says_so_while_it_runs():
    # Inputs this small leave every probability at a half.
    config = override(
        get_preset("smoke"),
        {
            "network.input_norm": 1e-3,
            "training.epochs": 11,
            "loss.neighbourhood_weight": 0.0,
            "training.batch_size": 128,
        },
    )
    output = io.StringIO()
    trained = train_model(make_synthetic(128, seed=0), config, progress=output)
    assert "warning after epoch 10: collapse: " in output.getvalue()
    assert any(problem.startswith("collapse") for problem in trained.problems)
