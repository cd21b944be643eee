"""The page is whole, self-contained, and safe whatever the captions are."""

import html.parser
import re

import numpy as np
import pytest

from cmimh_tf.codes import pack_bits
from cmimh_tf.metrics.evaluation import CodedItems, evaluate_retrieval
from cmimh_tf.metrics.neighbour_map import estimate_quality
from cmimh_tf.reports.model_report import Item, ReportContent, Retrieved, render_report

VOID = {"meta", "img", "br"}


class _Balance(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.sources, self.texts = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def _content(labels=True, **changes):
    rng = np.random.default_rng(0)
    codes = pack_bits(rng.integers(0, 2, (20, 16)))
    marks = np.eye(4, dtype=np.uint8)[rng.integers(0, 4, 20)] if labels else None
    items = CodedItems(codes, codes, marks)
    features = {"image": rng.standard_normal((20, 4)), "text": rng.standard_normal((20, 3))}
    example = Retrieved(Item("a <b>query</b>"), [Item("x & y", None, True, 0), Item("no", None, False, 3)])
    values = {
        "title": "emoji <run>",
        "metrics": evaluate_retrieval(items, items) | estimate_quality(items, items, features, features),
        "baseline": None,
        "blessed": True,
        "reasons": ["mAP@1000 21.2 is at least 15.0"],
        "history": [{"epoch": 1.0, "loss": 2.0}, {"epoch": 2.0, "loss": 1.0}],
        "probs": {"image": rng.random((20, 16)), "text": rng.random((20, 16))},
        "codes": {"image": codes, "text": codes},
        "text_queries": [example],
        "image_queries": [example],
        "config": {"code_length": 16},
    }
    return ReportContent(**values | changes)


def _parse(page):
    parser = _Balance()
    parser.feed(page)
    assert parser.open == []
    return parser


def test_page_is_self_contained():
    page = render_report(_content())
    parser = _parse(page)
    assert parser.sources
    assert all(source.startswith("data:") for source in parser.sources)
    assert "<script" not in page
    assert "@import" not in page


def test_what_users_wrote_is_escaped():
    page = render_report(_content())
    assert "<b>query</b>" not in page
    assert "a &lt;b&gt;query" in page
    assert "<title>emoji &lt;run&gt;</title>" in page


def test_right_and_wrong_are_marked_by_more_than_colour():
    text = " ".join(_parse(render_report(_content())).texts)
    assert "✓ 0" in text
    assert "✗ 3" in text


def test_without_labels_it_says_so_and_has_no_curves():
    page = render_report(_content(labels=False))
    assert "Other measures need labels." in page
    assert "Other measures need labels." not in render_report(_content())
    assert "<h2>Curves</h2>" not in page
    assert "own pair" in page


def test_difference_to_the_baseline_is_shown():
    metrics = _content().metrics
    worse = {**metrics, "map_at_1000": {task: value - 0.05 for task, value in metrics["map_at_1000"].items()}}
    page = render_report(_content(baseline=worse))
    assert "+5.0" in page
    assert "(+5.0)" in page


@pytest.mark.parametrize(("blessed", "word"), [(True, ">blessed<"), (False, ">not blessed<")])
def test_verdict(blessed, word):
    assert word in render_report(_content(blessed=blessed, problems=["dead bits: 3"]))


def test_narrow_screens_have_their_own_layout():
    page = render_report(_content())
    assert 'name="viewport"' in page
    assert re.search(r"@media \(max-width: \d+px\)", page)
