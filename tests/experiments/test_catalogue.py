"""The experiments: all there, with the cells that the paper's tables have, sharing what they can."""

import pytest

from cmimh_tf.baselines.registry import BASELINES
from cmimh_tf.config import get_preset
from cmimh_tf.experiments import BASE_PRESETS, EXPERIMENTS, make_experiment
from cmimh_tf.experiments.experiment import SplitSetting
from cmimh_tf.experiments.options import DataFacts, Options
from cmimh_tf.experiments.paper import describe_claims
from cmimh_tf.experiments.report import RunFacts, make_report, to_terminal
from cmimh_tf.experiments.results import describe_verdict
from cmimh_tf.experiments.studies import ABLATION_TERMS
from cmimh_tf.overrides import override


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("quick", [False, True])
def test_every_table_entry_has_a_cell_for_every_seed(name, quick, facts):
    options = Options(facts, get_preset(BASE_PRESETS.get(name, "default")), seeds=2, quick=quick)
    experiment = make_experiment(name, options)
    assert experiment.name == name
    assert experiment.about
    for table in experiment.tables:
        for row in table.rows:
            for column in table.columns:
                seeds = {
                    point.cell.seed
                    for point in experiment.points
                    if point.row == row and all(point.place.get(key) == value for key, value in column.place.items())
                }
                # The cost of a step does not depend on the seed, and paper-regime screens with the first.
                one_is_enough = column.measure == "relative_step_time" or name == "paper-regime"
                assert seeds >= {0} if one_is_enough else seeds == {0, 1}
    if experiment.contender:
        assert experiment.contender in experiment.tables[0].rows
        assert experiment.headline


def test_main_has_all_methods_four_tasks_and_the_paper_s_lengths(options):
    experiment = make_experiment("main", options)
    (table,) = experiment.tables
    assert list(table.rows) == [*BASELINES, "CCA, real-valued", "CMIMH"]
    assert len(table.columns) == 4 * 3
    assert {cell.split for cell in experiment.cells} == {SplitSetting(2000, 5000)}
    assert {(cell.code_length, cell.seed) for cell in experiment.cells} == {
        (b, s) for b in (16, 32, 48) for s in range(3)
    }


@pytest.mark.parametrize("name", ["main", "recall-one"])
def test_asymmetric_ranking_is_a_row_of_the_same_cells(name, facts, fake_results):
    experiment = make_experiment(name, Options(facts, rerank="asymmetric", seeds=2))
    plain = make_experiment(name, Options(facts, seeds=2))
    assert list(experiment.tables[0].rows) == [*plain.tables[0].rows, "CMIMH, asymmetric"]
    assert len(experiment.cells) == len(plain.cells)
    changed = {cell for cell in experiment.cells if cell.rerank == "asymmetric"}
    assert {cell.method for cell in changed} == {"CMIMH"}
    assert not {cell.file_stem("") for cell in changed} & {cell.file_stem("") for cell in plain.cells}
    assert set(experiment.cells) - changed < set(plain.cells)

    results = fake_results(experiment)
    column = experiment.headline[0]
    measure, task = column.measure.split(".")
    for cell in changed:
        results.by_cell[cell]["metrics"]["asymmetric"] = {measure: {task: 0.75}}
    assert results.column_summary("CMIMH, asymmetric", column).mean == 0.75
    assert results.column_summary("CMIMH", column).mean == 0.5
    # It is no rival of plain CMIMH, and no row of the paper.
    assert not any("CMIMH, asymmetric" in line for line in describe_verdict(results))
    assert "CMIMH, asymmetric" in to_terminal(make_report(results, RunFacts("", facts, get_preset("smoke"), 1, 1, {})))


def test_equal_cells_are_shared(options):
    cells = {name: set(make_experiment(name, options).cells) for name in EXPERIMENTS}
    assert cells["curves"] < cells["main"]
    full_model = {cell for cell in cells["main"] if cell.method == "CMIMH" and cell.code_length == 32}
    assert len(full_model) == 3
    for name in ("ablation", "independence", "critic-inputs", "mutual-information-weight", "modality-gap-weight"):
        assert full_model < cells[name]


def test_ablation_has_eight_different_combinations(options):
    assert len(set(ABLATION_TERMS)) == 8
    experiment = make_experiment("ablation", options)
    assert len(experiment.tables[0].rows) == 8
    assert len(experiment.cells) == 8 * 2 * 3
    weights = {
        point.row: point.cell.config.loss
        for point in experiment.points
        if point.cell.seed == 0 and point.place["bits"] == 32
    }
    alone = weights["modality gap"]
    assert alone.mutual_information_weight == alone.independence_weight == alone.balance_weight == 0
    assert alone.modality_gap_weight == get_preset("mscoco").loss.modality_gap_weight > 0
    assert alone.reconstruction_weight == 1
    assert weights["all four"] == get_preset("mscoco").loss


def test_sweep_goes_around_the_base_value(facts):
    experiment = make_experiment("mutual-information-weight", Options(facts, get_preset("mscoco"), seeds=1))
    values = [cell.config.loss.mutual_information_weight for cell in experiment.cells]
    assert values == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0]


@pytest.mark.parametrize(("preset", "sign"), [("mscoco", "signed_"), ("mscoco_summed", "")])
def test_critic_inputs_are_probs_and_four_numbers_of_samples_in_the_same_range(facts, preset, sign):
    experiment = make_experiment("critic-inputs", Options(facts, get_preset(preset)))
    seen = {
        (c.config.loss.critic_inputs, c.config.loss.critic_samples) for c in experiment.cells if c.method == "CMIMH"
    }
    assert seen == {(f"{sign}probs", 1), *((f"{sign}codes", count) for count in (1, 5, 10, 20))}


def test_training_sizes_beyond_the_data_fall_together(options):
    experiment = make_experiment("training-size", options)
    assert sorted({cell.split.num_train for cell in experiment.cells}) == [5000, 10_000, 16_020]
    assert {cell.method for cell in experiment.cells} == {"DJSRH", "DGCPN", "CIRH", "UCCH", "CMIMH"}
    assert "There are 16,020 pairs to train on: that is the last size, for 20,000." in experiment.about
    marked = Options(DataFacts("marked.npz", "x", 18_020, num_official_queries=1000, num_official_train=6000))
    about = make_experiment("training-size", marked).about
    assert "There are 6,000 pairs to train on: that is the last size, for 10,000 and 20,000." in about


def test_the_claim_about_training_sizes_names_them(options, fake_results):
    experiment = make_experiment("training-size", options)
    results = fake_results(experiment, lambda point: 0.8 if point.cell.split.num_train == 5000 else 0.7)
    assert "CMIMH, train 16020 (70.0 ± 0.0) against CMIMH, train 5000 (80.0 ± 0.0)" in describe_claims(results)[0]


def test_settings_of_other_papers(options):
    splits = {name: {cell.split for cell in make_experiment(name, options).cells} for name in EXPERIMENTS}
    assert splits["map50"] == splits["main"] == {SplitSetting(2000, 5000)}
    # All pairs that are not queries are trained on.
    assert splits["map-all"] == {SplitSetting(901, 17_119)}
    assert splits["recall-one"] == {SplitSetting(1000, 16_020, 1000)}
    large = Options(DataFacts("nuswide.npz", "x", 186_577), seeds=1)
    assert {cell.split for cell in make_experiment("map-all", large).cells} == {SplitSetting(1866, 184_711)}
    assert {cell.split for cell in make_experiment("handcrafted", large).cells} == {SplitSetting(2000, 20_000)}
    for name in ("map50", "map-all", "handcrafted", "recall-one"):
        assert {cell.code_length for cell in make_experiment(name, options).cells} == {16, 32, 64, 128}


def test_official_split_goes_before_any_number(facts):
    wiki = DataFacts("wiki.npz", "x", 2866, num_official_queries=693)
    assert {cell.split for cell in make_experiment("main", Options(wiki)).cells} == {SplitSetting(None, 2173)}
    assert {cell.split for cell in make_experiment("map50", Options(wiki)).cells} == {SplitSetting(None, 2173)}


def test_choices_of_the_user(facts):
    options = Options(facts, bits=(24,), seeds=1, methods=("ACQ", "CMIMH"), num_queries=100, num_train=200)
    experiment = make_experiment("main", options)
    assert [(c.method, c.code_length, c.split) for c in experiment.cells] == [
        ("ACQ", 24, SplitSetting(100, 200)),
        ("CMIMH", 24, SplitSetting(100, 200)),
    ]


def test_quick_is_smaller(facts):
    cells = make_experiment("main", Options(facts, quick=True)).cells
    assert {(c.code_length, c.seed) for c in cells} == {(16, 0), (32, 0)}
    assert {c.split for c in cells} == {SplitSetting(500, 1000)}
    assert {c.config.training.epochs for c in cells if c.config} == {10}


def test_what_is_chosen_goes_before_quick(facts):
    cells = make_experiment("main", Options(facts, quick=True, seeds=2, bits=(48,))).cells
    assert {(c.code_length, c.seed) for c in cells} == {(48, 0), (48, 1)}


def test_cells_are_named_by_what_sets_them_apart(options):
    names = make_experiment("modality-gap-weight", options).names
    assert len(set(names.values())) == len(names)
    assert "CMIMH, 32 bits, seed 0 (λ2 = 1.5)" in names.values()
    assert "CVH, 16 bits, seed 0" in make_experiment("main", options).names.values()


def test_bad_choices_are_refused(facts):
    with pytest.raises(ValueError, match=r"`methods` must be among CVH, .*Received: 'XYZ'"):
        Options(facts, methods=("XYZ",))
    with pytest.raises(ValueError, match=r"`code_length` must be a positive multiple of 8"):
        Options(facts, bits=(12,))
    with pytest.raises(ValueError, match=r"`seeds` must be at least 1. Received: seeds=0"):
        Options(facts, seeds=0)
    with pytest.raises(ValueError, match=r"`first_seed` must be at least 0. Received: -1"):
        Options(facts, first_seed=-1)
    with pytest.raises(ValueError, match=r"must leave pairs to train on"):
        DataFacts("x", "x", 100).split(num_queries=50, num_validation=50)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("modality-gap-weight", "modality_gap_weight"),
        ("independence", "independence_weight"),
        ("ablation", "balance_weight"),
    ],
)
def test_a_variant_without_a_term_needs_a_base_with_it(name, key, facts):
    without = Options(facts, override(get_preset("mscoco"), {f"loss.{key}": 0.0}))
    with pytest.raises(ValueError, match=rf"`loss.{key}` must be positive in the base configuration"):
        make_experiment(name, without)


def test_only_the_first_of_several_measures_decides_the_verdict(options):
    experiment = make_experiment("handcrafted", options)
    assert len(experiment.tables) == 3
    assert {column.measure for column in experiment.headline} == {"map.image_to_text", "map.text_to_image"}


def test_the_first_seed_moves_all_seeds(facts):
    experiment = make_experiment("main", Options(facts, seeds=2, first_seed=3))
    assert {cell.seed for cell in experiment.cells} == {3, 4}
