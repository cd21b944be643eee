"""The report: every weight has its curve, and nothing a user named can break the page."""

import html.parser

from tuner.criteria import LABEL_FREE_CRITERIA
from tuner.plots import parallel_coordinates_plot, sensitivity_plot
from tuner.report import render_report
from tuner.trials import TrialRecord

KEY = "loss.balance_weight"
DESCRIPTION = {
    "data": {"name": "<b>mine.npz", "sha256": "", "train_pairs": 5000},
    "space": [{"key": KEY}],
    "config": {"code_length": 32, "seed": 0},
}


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_page_has_the_pictures_the_trials_and_the_failures(records, result_of):
    page = render_report(DESCRIPTION, records, result_of(records, 4))
    tags = Tags(page).found
    assert [attributes["alt"] for tag, attributes in tags if tag == "img"] == [
        "val_map over loss.balance_weight",
        "parallel coordinates of all trials",
    ]
    assert "collapse, of course" in page
    assert "<b>mine" not in page
    assert not {"script", "link"} & {tag for tag, _ in tags}


def test_agreement_is_shown_where_there_are_labels(record, result_of):
    def criteria(score):
        return {**dict.fromkeys(LABEL_FREE_CRITERIA, 0.5), "pair_score": score}

    records = [record(i, score, value=score, criteria=criteria(score)) for i, score in enumerate((0.5, 0.6, 0.7))]
    page = render_report(DESCRIPTION, records, result_of(records, 3))
    assert "Criteria without labels" in page
    assert '<th scope="row">pair_score</th><td>1.00</td>' in page


def test_single_trial_can_be_drawn(record):
    records = [record(0, 0.5)]
    sensitivity_plot(records, KEY, "val_map", 0, is_grid=False)
    parallel_coordinates_plot(records, [KEY], "val_map")


def test_grid_joins_what_differs_in_one_weight():
    records = [
        TrialRecord(number, "completed", {"a": a, "b": b}, {"val_map": a * b})
        for number, (a, b) in enumerate([(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (2.0, 2.0)])
    ]
    axes = sensitivity_plot(records, "a", "val_map", 3, is_grid=True).axes[0]
    assert [list(line.get_ydata()) for line in axes.get_lines()] == [[1.0, 2.0], [2.0, 4.0]]
    assert [line.get_label() for line in axes.get_lines()] == ["b 1", "b 2"]
