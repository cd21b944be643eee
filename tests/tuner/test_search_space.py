"""The space: around the preset, on log scales, and nothing else."""

import pytest

from cmimh_tf.config import CMIMHConfig, LossConfig, get_preset
from cmimh_tf.overrides import override
from cmimh_tf.terms import Term
from tuner import search_space
from tuner.search_space import Dimension, make_space, searched_terms

WEIGHTS = [
    "loss.mutual_information_weight",
    "loss.modality_gap_weight",
    "loss.independence_weight",
    "loss.balance_weight",
]


def test_the_four_weights_lie_around_the_preset():
    space = make_space(get_preset("mscoco"))
    assert space.keys == WEIGHTS
    assert [item.start for item in space.dimensions] == [4.0, 1.5, 0.25, 0.01]
    for item in space.dimensions:
        assert item.low * item.high == pytest.approx(item.start**2)


def test_a_new_term_of_the_loss_is_searched_too(monkeypatch):
    rotation = Term("rotation", "L_rot", "rotation", weight=1.0, weight_symbol="λ5")
    monkeypatch.setattr(search_space, "TERMS", (*search_space.TERMS, rotation))
    assert searched_terms() == ["mutual_information", "modality_gap", "independence", "balance", "rotation"]


def test_preset_is_the_default_on_log_scales():
    hyperparameters = make_space(get_preset("mscoco")).hyperparameters()
    assert hyperparameters.values == dict(zip(WEIGHTS, [4.0, 1.5, 0.25, 0.01], strict=True))
    assert {item.sampling for item in hyperparameters.space} == {"log"}


def test_a_trial_changes_what_is_searched_and_nothing_else():
    config = get_preset("default")
    space = make_space(config, weights=["balance"])
    changed = space.trial_config({"loss.balance_weight": 0.5, "tuner/epochs": 3})
    assert changed == override(config, {"loss.balance_weight": 0.5})


def test_values_survive_32_bit_floats():
    space = make_space(get_preset("default"), weights=["balance"])
    assert space.overrides({"loss.balance_weight": 0.10000000149011612}) == {"loss.balance_weight": 0.1}


def test_weight_that_is_switched_off_stays_so_unless_it_is_named():
    config = CMIMHConfig(loss=LossConfig(independence_weight=2.0))
    assert make_space(config).keys == ["loss.independence_weight"]
    space = make_space(config, weights=["balance"])
    assert space.keys == ["loss.balance_weight"]
    assert space.config == override(config, {"loss.balance_weight": space.dimensions[0].start})
    assert space.dimensions[0].start == 0.01


def test_all_weights_are_searched_where_all_are_switched_off():
    space = make_space(get_preset("default"))
    assert [item.start for item in space.dimensions] == [40.0, 0.75, 2.5, 0.01]
    assert space.config.loss.mutual_information_weight == 40.0
    assert space.config.loss.neighbourhood_weight == get_preset("default").loss.neighbourhood_weight


def test_extras_by_name_and_by_key():
    space = make_space(
        override(get_preset("mscoco_summed"), {"loss.cross_reconstruction_weight": 1.0}),
        weights=["balance"],
        extras=["epochs", "loss.cross_reconstruction_weight=0.5:2"],
    )
    assert space.keys == ["loss.balance_weight", "training.epochs", "loss.cross_reconstruction_weight"]
    epochs, cross = space.dimensions[1:]
    assert (epochs.low, epochs.high, epochs.is_integer) == (20, 80, True)
    assert (cross.low, cross.high) == (0.5, 2.0)
    assert space.overrides(dict.fromkeys(space.keys, 33.4))["training.epochs"] == 33


def test_epochs_are_steps_where_steps_set_the_length():
    space = make_space(get_preset("mscoco"), weights=["balance"], extras=["epochs"])
    assert space.keys == ["loss.balance_weight", "training.steps"]
    assert (space.dimensions[1].low, space.dimensions[1].high) == (234, 936)


def test_grid_is_geometric_with_the_preset_in_the_middle():
    (item,) = make_space(get_preset("mscoco"), weights=["modality_gap"], grid_points=5).dimensions
    assert item.values == (0.375, 0.75, 1.5, 3.0, 6.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": ["balanc"]}, r"`weights` must be among mutual_information, .* Received: 'balanc'."),
        ({"extras": ["rate"]}, r"`extras` must be among input_norm, rates, epochs, or KEY=LOW:HIGH. Received: 'rate'."),
        ({"extras": ["loss.cross_decoders=1:2"]}, r"must name a number of the configuration."),
        ({"extras": ["loss.balance_weight=1:2"]}, r"contain its value in the configuration, 0.01. Received: 1:2."),
        ({"weights": ["balance"], "grid_points": 4}, r"`grid_points` must be an odd number of at least 3"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        make_space(get_preset("mscoco"), **options)


def test_number_that_is_null_cannot_be_searched_around():
    config = override(get_preset("default"), {"network.input_norm": None})
    with pytest.raises(ValueError, match=r"`network.input_norm` must be a number in the configuration"):
        make_space(config, extras=["input_norm"])


def test_ends_must_differ():
    with pytest.raises(ValueError, match=r"must have two different, positive ends"):
        Dimension("loss.balance_weight", 1.0, 1.0, 1.0)
