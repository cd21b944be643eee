"""Tables: literal Markdown and terminal text, the best in bold, the paper's values and the trend beside ours."""

from cmimh_tf.experiments.experiment import Column, Experiment, PaperTable, Point, Table
from cmimh_tf.experiments.results import Results
from cmimh_tf.experiments.tables import describe_trend, lay_out, lay_out_trend

COLUMNS = [
    Column("image to text", "16 bits", "map.image_to_text", {"bits": 16}),
    Column("image to text", "32 bits", "map.image_to_text", {"bits": 32}),
]
SCORES = {("FSH", 16): [0.5], ("FSH", 32): [0.6, 0.8], ("CMIMH", 16): [0.7], ("CMIMH", 32): [0.5]}


def make_table(make_cell, make_result, scores, best="max", references=(), paper=None):
    points, known = [], {}
    for (row, bits), values in scores.items():
        for seed, value in enumerate(values):
            cell = make_cell(row, bits, seed)
            points.append(Point(row, {"bits": bits}, cell))
            known[cell] = make_result(value)
    rows = list(dict.fromkeys(row for row, _ in scores))
    columns = [Column(c.group, c.title, c.measure, c.place, best=best) for c in COLUMNS]
    table = Table("mAP in %", "method", rows, columns, references, paper)
    return table, Results(Experiment("x", "x", "", points, [table]), known)


def test_markdown_to_the_letter(make_cell, make_result):
    assert lay_out(*make_table(make_cell, make_result, SCORES)).to_markdown() == (
        "### mAP in %\n\n"
        "| method | image to text 16 bits | image to text 32 bits |\n"
        "|---|---|---|\n"
        "| FSH | 50.0 | **70.0 ± 14.1** |\n"
        "| CMIMH | **70.0** | 50.0 |\n"
    )


def test_paper_values_stand_beside_ours_on_its_data_set(make_cell, make_result):
    paper = PaperTable("handcrafted", "CMIMH")
    text = lay_out(*make_table(make_cell, make_result, SCORES, paper=paper), "NUS-WIDE").to_markdown()
    assert "| FSH | 50.0 [50.6] | **70.0 ± 14.1** [50.6] |\n" in text
    assert "| CMIMH | **70.0** [53.7] | 50.0 [54.0] |\n" in text
    assert text.endswith("| CRE (cited) | 51.3 | 53.0 |\n")
    # The paper has this table for NUS-WIDE only.
    other = lay_out(*make_table(make_cell, make_result, SCORES, paper=paper), "MS-COCO").to_markdown()
    assert "[" not in other
    assert "cited" not in other


def test_trend_compares_differences_on_other_data_sets(make_cell, make_result):
    table, results = make_table(make_cell, make_result, SCORES, paper=PaperTable("handcrafted", "CMIMH"))
    trend = lay_out_trend(table, results)
    # FSH has 50.59 and 50.63, CRE 51.31 and 52.99, CMIMH 53.66 and 53.95; ours are 50 - 70 and 70 - 50.
    assert trend.to_markdown().splitlines()[-2:] == [
        "| FSH | -3.2 | +0.0 |",
        "| CRE (cited) | -1.7 | – |",
    ]
    assert list(zip(trend.groups, trend.titles, strict=True)) == [("image to text", "paper"), ("image to text", "here")]
    assert describe_trend(trend) == (
        'Trend: mAP in %, difference to "CMIMH": the sign is that of the paper in 0 of 1 entries.'
    )
    worse = {**SCORES, ("FSH", 32): [0.4]}
    table, results = make_table(make_cell, make_result, worse, paper=PaperTable("handcrafted", "CMIMH"))
    assert "in 1 of 1 entries" in describe_trend(lay_out_trend(table, results))


def test_no_trend_without_the_reference_row(make_cell, make_result):
    paper = PaperTable("handcrafted", "CMIMH")
    assert lay_out_trend(*make_table(make_cell, make_result, {("FSH", 16): [0.5]}, paper=paper)) is None


def test_no_trend_without_a_table_of_the_paper(make_cell, make_result):
    assert lay_out_trend(*make_table(make_cell, make_result, SCORES)) is None
    # The paper has mAP@50 in this table, not mAP.
    paper = PaperTable("map50", "CMIMH")
    assert lay_out_trend(*make_table(make_cell, make_result, SCORES, paper=paper)) is None


def test_terminal_has_a_block_of_aligned_columns_per_group(make_cell, make_result):
    lines = lay_out(*make_table(make_cell, make_result, SCORES)).to_terminal().splitlines()
    assert lines == [
        "mAP in %",
        "image to text  16 bits      32 bits",
        "FSH               50.0  70.0 ± 14.1",
        "CMIMH             70.0         50.0",
    ]


def test_least_may_be_best_and_references_are_never_bold(make_cell, make_result):
    scores = {("CVH", 16): [0.5], ("ACQ", 16): [0.7], ("FSH", 16): [0.1], ("PDH", 16): [0.5]}
    text = lay_out(*make_table(make_cell, make_result, scores, best="min", references=["FSH", "PDH"]))
    assert [entries[0].is_best for _, entries in text.rows] == [True, False, False, False]


def test_row_without_any_result_is_left_out(make_cell, make_result):
    text = lay_out(*make_table(make_cell, make_result, {("CVH", 16): [0.5], ("ACQ", 16): []}))
    assert [label for label, _ in text.rows] == ["CVH"]


def test_groups_span_their_columns(make_cell, make_result):
    assert lay_out(*make_table(make_cell, make_result, SCORES)).group_spans == [("image to text", 2)]
