"""The search for the regime of the paper: readings are screened by means, and one goes through all checks."""

import argparse
import functools

import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data import make_synthetic, save_npz
from cmimh_tf.experiments import make_experiment, regime
from cmimh_tf.experiments.__main__ import run_experiment
from cmimh_tf.experiments.options import Options
from cmimh_tf.experiments.regime import ALIGNED_READING, PRESET_READING, READINGS, regime_claims, satisfied_claims
from cmimh_tf.experiments.tables import lay_out_claims
from tests.experiments.test_command import FLAGS

LITTLE_MI = ("λ1 = 0.1", "modality gap + independence + balance")


@pytest.fixture
def first_stage(facts):
    return make_experiment("paper-regime", Options(facts, get_preset("mscoco"), seeds=3))


def score(point, rivals=0.7):
    """Mutual information helps in one reading. Another one has better codes, in which it does not."""
    if point.cell.config is None:
        return 0.2 if point.row == "Random" else rivals
    reading = point.place.get("reading", point.row)
    if reading == ALIGNED_READING:
        return 0.4 if has_little_mi(point) else 0.5
    return 0.6 if reading == "summed" else 0.3


def has_little_mi(point):
    return point.row in LITTLE_MI or point.place.get("variant") in LITTLE_MI


def test_every_reading_is_checked_with_the_first_seed_on_validation_pairs(first_stage):
    assert {cell.split.search_for for cell in first_stage.cells} == {"validation"}
    assert {cell.split.num_validation for cell in first_stage.cells} == {1000}
    # CMIMH with the first seed, rivals with all.
    assert {cell.seed for cell in first_stage.cells if cell.config} == {0}
    assert {cell.seed for cell in first_stage.cells if not cell.config} == {0, 1, 2}
    checked = {
        reading: {p.row for p in first_stage.points if p.place.get("reading") == reading} for reading in READINGS
    }
    assert {len(variants) for variants in checked.values()} == {15}
    assert {"λ1 = 0.1", "λ2 = 5", "all four", "critic on 1 sampled pair"} < checked["summed"]


def test_the_most_faithful_readings_and_the_one_with_the_best_codes_are_measured_with_all_seeds(
    first_stage, fake_results
):
    def scores(point):
        is_weak = has_little_mi(point) and PRESET_READING in (point.row, point.place.get("reading"))
        return 0.2 if is_weak else score(point)

    results = fake_results(first_stage, scores)
    # (a), a small λ2 costs little within modalities, and mutual information alone is better than chance.
    assert satisfied_claims(results, ALIGNED_READING) == (3, 8, 0.5)
    assert satisfied_claims(results, "summed") == (2, 4, 0.6)
    second = first_stage.next_stage(results)
    assert second.next_stage is None
    chosen = [ALIGNED_READING, PRESET_READING, "summed"]
    assert second.detailed == chosen
    assert f'satisfied by "{ALIGNED_READING}" and "{PRESET_READING}", and "summed" has the best codes' in second.about
    seeds = {
        reading: {point.cell.seed for point in second.points if point.place.get("reading") == reading}
        for reading in READINGS
    }
    assert {reading for reading, found in seeds.items() if found == {0, 1, 2}} == set(chosen)
    assert set(first_stage.cells) < set(second.cells)


def test_one_reading_may_have_both(first_stage, fake_results):
    second = first_stage.next_stage(fake_results(first_stage, functools.partial(score, rivals=0.55)))
    assert second.detailed == ["summed", ALIGNED_READING]


def test_verdicts_follow_the_figures(first_stage, fake_results):
    second = first_stage.next_stage(fake_results(first_stage, score))

    def of_variant(point):
        if point.row == "λ2 = 5":
            # Worse by the mean, but not by a deviation.
            return 0.35 + 0.1 * point.cell.seed
        return 0.6 if point.cell.config is None else 0.2 if has_little_mi(point) else 0.5

    counts, *tables = lay_out_claims(fake_results(second, of_variant))
    details = next(table for table in tables if table.title.endswith(ALIGNED_READING))
    assert details.title == f"The paper's claims: {ALIGNED_READING}"
    holds = {label: entries[2].text for label, entries in details.rows}
    assert holds["(a) λ1 ≤ 0.1 is worse than λ1 from 1 to 4."] == "yes, 4 of 4"
    assert holds["(b) λ2 < 0.5 is worse across modalities."] == "no, 0 of 2"
    assert holds["(b) λ2 < 0.5 costs less than 2 points within modalities."] == "yes, 2 of 2"
    assert holds["(b) λ2 ≥ 5 is worse in all four tasks."] == "no, 0 of 4"
    assert holds["(c) Without the modality gap, I is better than random codes."] == "no, 0 of 2"
    assert holds["(f) It is better than PDH."] == "no, 0 of 2"
    calls = {label: entries[1].text for label, entries in details.rows}
    assert calls["(f) It is better than PDH."].startswith(
        "image to text, 32 bits: all four (50.0 ± 0.0) against PDH (60.0 ± 0.0)"
    )

    rows = dict(counts.rows)
    assert list(rows) == list(READINGS)
    by_claim = dict(zip(counts.titles, rows[ALIGNED_READING], strict=True))
    assert (by_claim["(a) λ1"].text, by_claim["(a) λ1"].is_best) == ("4 of 4", True)
    # Seven rivals, two columns each, are one claim.
    assert (by_claim["(f) rivals"].text, by_claim["(f) rivals"].is_best) == ("0 of 14", False)
    assert (by_claim["claims"].text, by_claim["by a deviation"].text) == ("3", "2")
    # A reading with one seed has no deviation.
    assert rows["averaged, one critic network"][-1].text == "–"


def test_published_figures_are_the_closest_call_of_the_paper():
    published = {claim.text: claim.published for claim in regime_claims("summed", 32)}
    assert published["(a) λ1 ≤ 0.1 is worse than λ1 from 1 to 4."] == "81.9 against 77.9; 81.4 against 76.0"
    assert published["(d) The independence term lowers the correlation MSE."] == "40.0 against 92.0; 47.0 against 110.0"
    assert published["(c) Without the modality gap, I is better than random codes."] == "75.1; 73.1"
    assert published["(f) It is better than PDH."] == "81.9 against 79.6; 81.4 against 78.6"
    assert published["(b) λ2 ≥ 5 is worse in all four tasks."] == "curves only"


@pytest.mark.e2e
def test_both_stages_run_one_after_the_other(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(regime, "_QUICK_READINGS", (ALIGNED_READING,))
    monkeypatch.setattr(regime, "_RIVALS", {"CVH": "CVH"})
    save_npz(tmp_path / "pairs.npz", make_synthetic(150, seed=0))
    small = ["network.hidden_units=[8]", "network.critic_units=[4]", "network.critic_embedding_units=4"]
    flags = {
        **FLAGS, "name": "paper-regime", "data": str(tmp_path / "pairs.npz"), "out": tmp_path / "out", "preset": None,
        "epochs": 1, "set": [*small, "training.batch_size=16"], "bits": [8], "quick": True, "jobs": 1,
    }  # fmt: skip
    run_experiment(argparse.Namespace(**flags))
    assert "(a) λ1 ≤ 0.1 is worse than λ1 from 1 to 4." in capsys.readouterr().out
    assert "With the first seed," in (tmp_path / "out/paper-regime/results.md").read_text()
