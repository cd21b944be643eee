"""The paper's figures: complete, beside the same measure of the same data set, and compared by trend and claim."""

import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.experiments import EXPERIMENTS, make_experiment
from cmimh_tf.experiments.experiment import Claim, Column, Experiment, PaperTable, Point, Table
from cmimh_tf.experiments.options import DataFacts, Options
from cmimh_tf.experiments.paper import (
    DATA_SETS,
    cited_label,
    cited_methods,
    data_set_of,
    describe_claims,
    paper_figures,
    paper_value,
    trend_of,
)
from cmimh_tf.experiments.results import Results

MAIN = PaperTable("main", "CMIMH")
ABLATION = PaperTable("ablation", "x", {"x": "I SKL"})


def column(measure, bits, **place):
    return Column("", "", measure, {"bits": bits, **place})


def test_all_502_figures_are_there_in_the_units_of_our_metrics():
    figures = paper_figures()
    assert len(figures) == 502
    assert {figure.data_set for figure in figures} == set(DATA_SETS.values())
    assert {figure.table for figure in figures} < set(EXPERIMENTS)
    shares = [value for figure, value in figures.items() if figure.measure.startswith(("map", "recall", "precision"))]
    assert len(shares) > 450
    assert all(0.3 < value < 1 for value in shares)


@pytest.mark.parametrize(
    ("table", "data_set", "row", "shown", "value"),
    [
        (MAIN, "MIR-Flickr25k", "CVH", column("map_at_1000.image_to_text", 16), 0.6818),
        (MAIN, "MS-COCO", "CMIMH", column("map_at_1000.text_to_text", 48), 0.7489),
        (MAIN, "MS-COCO", "ACQ (tuned ridge)", column("map_at_1000.text_to_text", 48), None),
        (MAIN, "MS-COCO", "CMIMH", column("map_at_1000.text_to_text", 64), None),
        (MAIN, "MS-COCO", "CMIMH", column("map_at_50.text_to_text", 48), None),
        (PaperTable("map50", "CMIMH"), "NUS-WIDE", "UDCMH", column("map_at_50.text_to_image", 64), 0.695),
        (PaperTable("map-all", "CMIMH"), "MIR-Flickr25k", "UKD-SS", column("map.text_to_image", 16), 0.715),
        (PaperTable("handcrafted", "CMIMH"), "NUS-WIDE", "CRE", column("map.image_to_text", 32), 0.5299),
        (PaperTable("handcrafted", "CMIMH"), "NUS-WIDE", "FSH", column("precision_at_100.image_to_text", 64), 0.5616),
        # The second pair of columns of the RecallOne table is text to image.
        (PaperTable("recall-one", "CMIMH"), "MS-COCO", "CMIMH", column("recall_one_at_1.text_to_image", 128), 0.6982),
        # Real vectors have no bits: they stand beside codes of any length.
        (
            PaperTable("recall-one", "CMIMH"),
            "MS-COCO",
            "LDR (1024 real numbers)",
            column("recall_one_at_10.image_to_text", 16),
            0.913,
        ),
        (
            PaperTable("training-size", "CMIMH"),
            "NUS-WIDE",
            "DJSRH",
            column("map_at_1000.image_to_text", 32, train=20_000),
            0.7758,
        ),
        (ABLATION, "MIR-Flickr25k", "x", column("map_at_1000.image_to_text", 48), 0.8207),
        (ABLATION, "MIR-Flickr25k", "y", column("map_at_1000.image_to_text", 48), None),
    ],
)  # fmt: skip
def test_value_belongs_to_data_set_row_measure_and_bits(table, data_set, row, shown, value):
    assert paper_value(table, data_set, row, shown) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("name", sorted({figure.table for figure in paper_figures()}))
def test_every_figure_of_the_paper_has_a_place_in_the_experiment_that_repeats_its_table(name):
    """Where data set and setting agree, no figure may be lost by a wrong name of a row or a measure."""
    figures = {figure: value for figure, value in paper_figures().items() if figure.table == name}
    lengths = tuple(sorted({figure.bits for figure in figures if figure.bits}))
    shown = set()
    for data_set in {figure.data_set for figure in figures}:
        title = next(start for start, full in DATA_SETS.items() if full == data_set)
        experiment = make_experiment(
            name, Options(DataFacts(f"{title}.npz", "x", 186_577), get_preset("mscoco"), seeds=1, bits=lengths)
        )
        for table in experiment.tables:
            assert table.paper.reference in table.rows
            for row in [*table.rows, *cited_methods(table)]:
                for entry in table.columns:
                    shown.add((data_set, paper_value(table.paper, data_set, row, entry)))
    assert shown - {(data_set, None) for data_set in DATA_SETS.values()} == {
        (figure.data_set, value) for figure, value in figures.items()
    }


@pytest.mark.parametrize(
    ("title", "data_set"),
    [
        ("mirflickr25k", "MIR-Flickr25k"),
        ("MIRFlickr-25k_vgg", "MIR-Flickr25k"),
        ("nus_wide", "NUS-WIDE"),
        ("coco18k", None),
        ("wiki", None),
    ],
)
def test_data_set_by_file_name(title, data_set):
    assert data_set_of(title) == data_set


def test_cited_methods_are_those_that_are_not_implemented_here():
    def cited(name):
        return cited_methods(Table("", "", ["CMIMH"], [], paper=PaperTable(name, "CMIMH")))

    assert cited("main") == []
    assert cited("map50") == ["UDCMH"]
    assert cited("map-all") == ["MGAH", "UKD-SS"]
    assert cited("recall-one") == ["LDR (1024 real numbers)"]
    assert cited("handcrafted") == ["CRE"]
    assert cited_methods(Table("", "", ["x"], [], paper=PaperTable("ablation", "x", {"x": "I"}))) == []
    assert cited_methods(Table("", "", ["x"], [])) == []


def test_cited_rows_are_marked():
    assert cited_label("UDCMH") == "UDCMH (cited)"
    assert cited_label("LDR (1024 real numbers)") == "LDR (1024 real numbers, cited)"


def make_results(make_cell, make_result, scores, columns, claims=(), paper=MAIN):
    points, known = [], {}
    for (row, bits), values in scores.items():
        for seed, value in enumerate(values):
            cell = make_cell(row, bits, seed)
            points.append(Point(row, {"bits": bits}, cell))
            known[cell] = make_result(value)
    rows = list(dict.fromkeys(row for row, _ in scores))
    table = Table("mAP", "method", rows, columns, paper=paper)
    return table, Results(Experiment("x", "x", "", points, [table], claims=claims), known)


def test_difference_is_a_mean_over_data_sets_and_columns(make_cell, make_result):
    columns = [column("map_at_1000.image_to_text", bits) for bits in (16, 32, 64)]
    scores = {("CVH", 16): [0.5], ("CVH", 32): [0.4], ("CVH", 64): [0.0]}
    scores |= {("CMIMH", bits): [0.7] for bits in (16, 32, 64)}
    table, results = make_results(make_cell, make_result, scores, columns)
    by_hand = [68.18 - 80.68, 66.95 - 81.93, 56.43 - 73.92, 57.16 - 76.37, 61.49 - 65.32, 62.15 - 69.21]
    # 64 bits are not in the paper's table, so ours do not count either.
    assert trend_of(table, results, "CVH", columns) == pytest.approx((sum(by_hand) / 600, -0.25))
    assert trend_of(table, results, "ACQ (tuned ridge)", columns) == (None, None)


def test_trend_counts_the_columns_that_both_have_or_all_of_the_paper_for_a_cited_row(make_cell, make_result):
    columns = [column("map.image_to_text", bits) for bits in (16, 32)]
    scores = {("FSH", 16): [0.5], ("CMIMH", 16): [0.7], ("CMIMH", 32): [0.7]}
    paper = PaperTable("handcrafted", "CMIMH")
    table, results = make_results(make_cell, make_result, scores, columns, paper=paper)
    assert trend_of(table, results, "FSH", columns) == pytest.approx((0.5059 - 0.5366, -0.2))
    cited, here = trend_of(table, results, "CRE", columns)
    assert cited == pytest.approx((0.5131 - 0.5366 + 0.5299 - 0.5395) / 2)
    assert here is None


def test_claim_holds_where_every_better_row_exceeds_every_worse_one_by_a_deviation(make_cell, make_result):
    columns = [Column("image to text", f"{bits} bits", "map.image_to_text", {"bits": bits}) for bits in (16, 32)]
    claim = Claim("CMIMH and ACQ are better than CVH.", ["CMIMH", "ACQ"], ["CVH"], columns)
    scores = {
        ("CVH", 16): [0.5, 0.5], ("ACQ", 16): [0.6, 0.6], ("CMIMH", 16): [0.9, 0.9],
        ("CVH", 32): [0.5, 0.7], ("ACQ", 32): [0.61, 0.61], ("CMIMH", 32): [0.9, 0.9],
    }  # fmt: skip
    _, results = make_results(make_cell, make_result, scores, columns, [claim])
    assert describe_claims(results) == [
        "The paper: CMIMH and ACQ are better than CVH. Here it holds by at least one deviation in 1 of 2 columns. "
        "Exceptions: image to text, 32 bits: ACQ (61.0 ± 0.0) against CVH (60.0 ± 14.1)."
    ]


def test_less_may_be_better_and_claims_without_results_are_not_judged(make_cell, make_result):
    less = [Column("TC", "16 bits", "map.image_to_text", {"bits": 16}, best="min")]
    claims = [Claim("With is less.", ["CVH"], ["ACQ"], less), Claim("Unknown.", ["FSH"], ["ACQ"], less)]
    scores = {("CVH", 16): [0.5, 0.5], ("ACQ", 16): [0.6, 0.6]}
    _, results = make_results(make_cell, make_result, scores, less, claims)
    assert describe_claims(results) == [
        "The paper: With is less. Here it holds by at least one deviation in 1 of 1 columns.",
        "The paper: Unknown. Here this was not measured.",
    ]


def test_weights_of_a_sweep_are_sorted_into_the_ranges_of_the_claims(facts, fake_results):
    experiment = make_experiment("mutual-information-weight", Options(facts, get_preset("mscoco"), seeds=2))
    low, high = experiment.claims
    assert (low.better, low.worse) == (["λ1 = 1", "λ1 = 2", "λ1 = 4"], ["λ1 = 0"])
    assert high.worse == ["λ1 = 8", "λ1 = 16"]
    results = fake_results(experiment, lambda point: 0.2 if point.place["weight"] < 0.1 else 0.5)
    assert "in all four tasks. Here it holds by at least one deviation in 4 of 4 columns" in describe_claims(results)[0]
    assert "Here it holds by at least one deviation in 0 of 4 columns" in describe_claims(results)[1]
