"""The table of terms drives configuration, sum, trackers and printed equation."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from cmimh_tf import losses
from cmimh_tf.config import LossConfig, get_preset
from cmimh_tf.overrides import override
from cmimh_tf.terms import TENSORS, TERMS, active_terms, equation, weighted_sum

ROOT = Path(__file__).resolve().parents[1]

ADDED_TERM = """
import numpy as np
import tensorflow as tf
from cmimh_tf import losses, terms

def sparsity(image_probs):
    "The mean of the image probs."
    return tf.reduce_mean(image_probs)

losses.sparsity = sparsity
terms.TERMS = (*terms.TERMS, terms.Term("sparsity", "L_1", "sparsity", weight=0.5, weight_symbol="λ5"))

from cmimh_tf import CMIMH
from cmimh_tf.config import get_preset
from cmimh_tf.overrides import override
config = override(get_preset("smoke"), {"loss.sparsity_weight": 3.0})
model = CMIMH(config=config)
model.compile()
image, text = np.random.default_rng(0).normal(size=(2, 64, 6)).astype("float32")
history = model.fit({"image": image, "text": text}, epochs=1, verbose=0).history
print(config.loss.weight("sparsity"), "sparsity" in history, model.equation.endswith("+ 3 L_1"))
model.step.assign(10_000)
found = model.compute_losses({"image": image, "text": text}, training=False)
without = {**found, "sparsity": tf.zeros([])}
print(np.isclose(model.objective(found) - model.objective(without), 3 * found["sparsity"], rtol=1e-3))
"""


def test_a_new_term_is_one_entry_and_one_function():
    found = subprocess.run([sys.executable, "-c", ADDED_TERM], capture_output=True, text=True, cwd=ROOT, check=False)
    assert found.stdout.split() == ["3.0", "True", "True", "True"], found.stderr[-2000:]


def test_every_term_has_a_function_of_its_name_with_known_tensors_and_a_weight():
    fields = LossConfig.__dataclass_fields__
    for term in TERMS:
        assert term.function is getattr(losses, term.name)
        assert set(term.tensors) <= set(TENSORS)
        assert fields[term.weight_key].default == term.weight
        assert term.warmup is None or term.warmup in fields
        assert term.reduction is None or term.reduction in fields
        assert (term.reduction is None) == ("reduction" not in inspect.signature(term.function).parameters)


def test_names_symbols_and_titles_are_unique():
    for attribute in ("name", "symbol", "title"):
        assert len({getattr(term, attribute) for term in TERMS}) == len(TERMS)


def test_a_weight_of_zero_switches_a_term_off():
    loss = override(get_preset("smoke"), {"loss.balance_weight": 0.0}).loss
    assert [term.name for term in active_terms(loss)] == [term.name for term in TERMS if term.name != "balance"]


def test_weighted_sum_by_hand():
    loss = LossConfig(neighbourhood_weight=0.3, reconstruction_weight=1.0, cross_reconstruction_weight=0.2,
                      mutual_information_weight=2.0, modality_gap_weight=3.0, independence_weight=0.5,
                      balance_weight=0.7, modality_gap_warmup_steps=4)  # fmt: skip
    values = dict(
        zip([term.name for term in TERMS], tf.unstack(tf.constant([20.0, 1.0, 10.0, 0.5, 2.0, 4.0, 8.0])), strict=True)
    )
    values["discriminator"] = tf.constant(99.0)
    # 64 bits halve the terms that sum over bits; after 1 of 4 warm-up steps the gap has a quarter of its weight.
    expected = 0.3 * 20.0 + 1.0 + 0.2 * 10.0 - 2.0 * 0.5 + 0.5 * (0.25 * 3.0 * 2.0 + 0.5 * 4.0 + 0.7 * 8.0)
    assert weighted_sum(values, loss, 64, tf.constant(1)).numpy() == pytest.approx(expected)
    del values["neighbourhood"]
    assert weighted_sum(values, loss, 64, tf.constant(1)).numpy() == pytest.approx(expected - 0.3 * 20.0)


def test_a_mean_over_bits_is_not_scaled_by_the_code_length():
    loss = LossConfig(neighbourhood_weight=0.0, reconstruction_weight=1.0, modality_gap_weight=3.0,
                      modality_gap_reduction="mean", independence_weight=0.5,
                      modality_gap_warmup_steps=0)  # fmt: skip
    values = {"reconstruction": tf.constant(1.0), "modality_gap": tf.constant(2.0), "independence": tf.constant(4.0)}
    assert weighted_sum(values, loss, 64, tf.constant(0)).numpy() == pytest.approx(1.0 + 3.0 * 2.0 + 0.5 * 0.5 * 4.0)
    assert equation(loss) == "L_rec + 3 D_SKL + 0.5 (32/L) L_ind"


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("mscoco", "L_rec - 4 I_JS + 1.5 D_SKL + 0.25 L_ind + 0.01 L_bal"),
        ("default", "L_nbr"),
    ],
)
def test_printed_equation_has_the_configured_weights(preset, expected):
    assert equation(get_preset(preset).loss) == expected


def test_documentation_prints_the_equation_that_the_default_trains():
    assert equation(get_preset("default").loss) in (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
