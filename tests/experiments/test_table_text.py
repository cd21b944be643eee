"""Tables: literal Markdown, the best in bold, references and published figures never."""

import html.parser

from cmimh_tf.experiments.experiment import Column, Experiment, Point, Table
from cmimh_tf.experiments.published_figures import PublishedRow
from cmimh_tf.experiments.results import Results
from cmimh_tf.experiments.table_text import lay_out, to_html, to_markdown

COLUMNS = [
    Column("image to text", "16 bits", "map.image_to_text", {"bits": 16}),
    Column("image to text", "32 bits", "map.image_to_text", {"bits": 32}),
]
CITED = PublishedRow("UDCMH", "nuswide", "map-all", "map", "a paper", {"image_to_text": {16: 99.0}})


def make_text(make_cell, make_result, scores, published=(), best="max", references=()):
    points, known = [], {}
    for (row, bits), values in scores.items():
        for seed, value in enumerate(values):
            cell = make_cell(row, bits, seed)
            points.append(Point(row, {"bits": bits}, cell))
            known[cell] = make_result(value)
    rows = list(dict.fromkeys(row for row, _ in scores))
    columns = [Column(c.group, c.title, c.measure, c.place, best=best) for c in COLUMNS]
    table = Table("mAP in %", "method", rows, columns, references)
    return lay_out(table, Results(Experiment("x", "x", "", points, [table]), known), published)


def test_markdown_to_the_letter(make_cell, make_result):
    scores = {("CVH", 16): [0.5], ("CVH", 32): [0.6, 0.8], ("ACQ", 16): [0.7], ("ACQ", 32): [0.5]}
    text = make_text(make_cell, make_result, scores, [CITED])
    assert to_markdown(text) == (
        "### mAP in %\n\n"
        "| method | image to text 16 bits | image to text 32 bits |\n"
        "|---|---|---|\n"
        "| CVH | 50.0 | **70.0 ± 14.1** |\n"
        "| ACQ | **70.0** | 50.0 |\n"
        "| UDCMH (cited) | 99.0 | – |\n"
    )


def test_least_may_be_best_and_references_are_never_bold(make_cell, make_result):
    scores = {("CVH", 16): [0.5], ("ACQ", 16): [0.7], ("FSH", 16): [0.1], ("PDH", 16): [0.5]}
    text = make_text(make_cell, make_result, scores, best="min", references=["FSH", "PDH"])
    assert [bold[0] for _, _, bold in text.rows] == [True, False, False, False]


def test_row_without_any_result_is_left_out(make_cell, make_result):
    text = make_text(make_cell, make_result, {("CVH", 16): [0.5], ("ACQ", 16): []})
    assert [label for label, _, _ in text.rows] == ["CVH"]


def test_html_is_balanced_escaped_and_groups_columns(make_cell, make_result):
    page = to_html(make_text(make_cell, make_result, {("<b>&", 16): [0.5], ("ACQ", 16): [0.7]}))
    opened = []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            opened.append(tag)

        def handle_endtag(self, tag):
            assert opened.pop() == tag

    Parser().feed(page)
    assert opened == []
    assert "&lt;b&gt;&amp;" in page
    assert 'colspan="2"' in page
    assert "<td><b>70.0</b></td>" in page
