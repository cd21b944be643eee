import json

import numpy as np
import pytest

from cmimh_tf.config import PRESETS, CMIMHConfig, get_preset
from cmimh_tf.experiments.regime import PRESET_READING, READINGS
from cmimh_tf.overrides import flatten, override, parse_overrides


def test_paper_presets_hold_the_papers_values():
    expected = {
        "mirflickr25k": (1.5, 1.0, 0.25, 0.01),
        "nuswide": (1.5, 1.0, 0.25, 0.01),
        "mscoco": (4.0, 1.5, 0.25, 0.01),
    }
    for name, weights in expected.items():
        config = get_preset(name)
        loss = config.loss
        assert (
            loss.mutual_information_weight,
            loss.modality_gap_weight,
            loss.independence_weight,
            loss.balance_weight,
        ) == weights
        assert loss.reconstruction_weight == 1.0
        assert not loss.scale_by_code_length
        assert loss.modality_gap_warmup_steps == 0
        optimizer = config.optimizer
        assert (optimizer.encoder_rate, optimizer.critic_rate, optimizer.discriminator_rate) == (
            0.01,
            0.01,
            0.01,
        )
        assert (optimizer.decoder_rate, optimizer.momentum, optimizer.weight_decay) == (0.001, 0.9, 1e-4)
        assert optimizer.schedule == "constant"
        assert config.neighbourhood.neighbours == 0
        assert config.training.batch_size == 128
        assert config.network.hidden_units == config.network.decoder_layers() == (1024, 1024)
        assert config.network.critic_units == (512, 512)


@pytest.mark.parametrize(
    ("name", "reading"),
    [
        ("mirflickr25k", PRESET_READING),
        ("nuswide", PRESET_READING),
        ("mscoco", PRESET_READING),
        ("mscoco_summed", "summed"),
    ],
)
def test_the_papers_presets_are_the_reading_under_which_most_of_its_claims_hold(name, reading):
    assert override(get_preset(name), READINGS[reading]) == get_preset(name)
    assert override(get_preset(name), READINGS["averaged"]) != get_preset(name)


@pytest.mark.parametrize("name", PRESETS)
def test_json_round_trip(name):
    config = get_preset(name)
    assert CMIMHConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_overrides_from_arguments_and_file(tmp_path):
    file = tmp_path / "best.json"
    file.write_text('{"loss": {"balance_weight": 0.5}, "code_length": 64}')
    values = parse_overrides([f"@{file}", "loss.mutual_information_weight=4", "loss.critic_inputs=codes"])
    config = override(CMIMHConfig(), values)
    assert (config.loss.balance_weight, config.code_length) == (0.5, 64)
    assert config.loss.mutual_information_weight == 4.0
    assert isinstance(config.loss.mutual_information_weight, float)
    assert config.loss.critic_inputs == "codes"
    assert config.loss.modality_gap_weight == CMIMHConfig().loss.modality_gap_weight


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ("loss.mutual_info_weight=4", ValueError, "Nearest: loss.mutual_information_weight"),
        ("loss.balance_weight=-1", ValueError, "`loss.balance_weight` must be a finite number of at least 0"),
        (
            "loss.balance_weight=NaN",
            ValueError,
            "`loss.balance_weight` must be a finite number of at least 0",
        ),
        ("loss.balance_weight=much", TypeError, "`loss.balance_weight` must be of type float"),
        ("training.epochs=2.5", TypeError, "`training.epochs` must be of type int"),
        ("training.epochs=0", ValueError, "`training.epochs` must be positive"),
        ("training.batch_size=1", ValueError, "`training.batch_size` must be at least 2"),
        ("loss.scale_by_code_length=1", TypeError, "`loss.scale_by_code_length` must be of type bool"),
        ("loss.critic_inputs=logits", ValueError, "must be one of probs, signed_probs, codes, signed_codes"),
        ("loss.modality_gap_reduction=max", ValueError, "`loss.modality_gap_reduction` must be one of sum, mean"),
        ("network.initializer=he", ValueError, "`network.initializer` must be one of glorot, pytorch"),
        ("network.hidden_units=[1024, 0]", ValueError, "`network.hidden_units` must be positive"),
        ("network.hidden_units=[]", TypeError, "`network.hidden_units` must be of type"),
        (
            "code_length=12",
            ValueError,
            "`code_length` must be a positive multiple of 8. Received: code_length=12.",
        ),
        ("neighbourhood.landmarks=1", ValueError, "`neighbourhood.landmarks` must be at least 2"),
        ("neighbourhood.own_share=1.5", ValueError, "`neighbourhood.own_share` must be at most 1"),
        ("training.validation_share=1", ValueError, "`training.validation_share` must be below 1"),
        ("loss=3", ValueError, "`loss` is not a configuration key"),
    ],
)
def test_bad_override_is_named(argument, error, message):
    with pytest.raises(error, match=message.replace("[", r"\[")):
        override(CMIMHConfig(), parse_overrides([argument]))


def test_bad_set_arguments(tmp_path):
    with pytest.raises(ValueError, match="takes key=value"):
        parse_overrides(["loss.balance_weight"])
    with pytest.raises(ValueError, match="readable JSON file"):
        parse_overrides([f"@{tmp_path}/missing.json"])
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ValueError, match="must hold a JSON object"):
        parse_overrides([f"@{tmp_path}/list.json"])


def test_unknown_preset():
    with pytest.raises(
        ValueError, match="`preset` must be one of default, mirflickr25k, nuswide, mscoco, mscoco_summed, smoke"
    ):
        get_preset("coco")


def test_flatten_joins_keys_with_dots():
    assert flatten({"a": {"b": 1, "c": {"d": 2}}, "e": 3}) == {"a.b": 1, "a.c.d": 2, "e": 3}


def test_an_objective_without_terms_is_refused():
    with pytest.raises(ValueError, match=r"At least one weight in `loss` must be positive"):
        override(get_preset("default"), {"loss.neighbourhood_weight": 0})


def test_integers_of_numpy_are_integers():
    assert override(get_preset("smoke"), {"code_length": np.int64(24)}).code_length == 24


def test_a_seed_has_a_limit():
    assert override(get_preset("smoke"), {"seed": 2**32 - 1}).seed == 2**32 - 1
    with pytest.raises(ValueError, match=r"`seed` must be below 2\^32\. Received: seed=4294967296"):
        override(get_preset("smoke"), {"seed": 2**32})
