"""The figures of the CMIMH paper beside ours: its values, the trend of its tables, and its claims.

Hoang, Do, Nguyen and Cheung, "Multi-Modal Mutual Information Maximization: A Novel Approach for Unsupervised Deep
Cross-Modal Hashing", IEEE TNNLS 2023, arXiv 2112.06489. paper_figures.json holds all figures of its tables, which cite
UDCMH, MGAH, UKD-SS, LDR and CRE from their own papers. The RecallOne table prints "Img→Txt" twice; the second pair of
columns is read as text to image.
"""

import functools
import json
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import resources

from cmimh_tf.experiments.experiment import Claim, Column, PaperTable, Place, Table
from cmimh_tf.experiments.options import all_methods
from cmimh_tf.experiments.results import Results, Summary, doubt_about, format_summary

# The start of a data file's name, in lower case and without separators, and the paper's name of the data set.
DATA_SETS = {"mirflickr25k": "MIR-Flickr25k", "nuswide": "NUS-WIDE", "mscoco": "MS-COCO"}
_METHOD_OF_VARIANTS = "CMIMH"
# Measures that the paper gives in percent, and that our metrics hold as shares.
_PERCENT = ("map", "recall_one", "precision", "share")


@dataclass(frozen=True)
class _Figure:
    """Where a value of the paper belongs. `bits` is None for real-valued vectors."""

    table: str
    data_set: str
    measure: str
    method: str
    setting: str
    task: str
    bits: int | None


@functools.cache
def paper_figures() -> dict[_Figure, float]:
    """All values of the paper's tables, in the units of our metrics."""
    text = resources.files("cmimh_tf.experiments").joinpath("paper_figures.json").read_text(encoding="utf-8")
    figures = {}
    for row in json.loads(text):
        scale = 0.01 if row["measure"].startswith(_PERCENT) else 1.0
        for bits, value in row["values"].items():
            key = _Figure(
                row["table"], row["data_set"], row["measure"], row["method"], row.get("setting", ""), row["task"],
                int(bits) if bits.isdigit() else None,
            )  # fmt: skip
            figures[key] = scale * value
    return figures


def data_set_of(data_title: str) -> str | None:
    """The paper's name of the data set that a file is named after, or None.

    coco18k is not MS-COCO here: its pairs and its features are others.

    Args:
        data_title: the file's name without suffix, such as "nuswide_features".
    """
    plain = data_title.lower().replace("-", "").replace("_", "")
    return next((name for start, name in DATA_SETS.items() if plain.startswith(start)), None)


def paper_value(table: PaperTable, data_set: str, row: str, column: Column) -> float | None:
    """The paper's value for an entry of our table, in the units of our metrics.

    Args:
        table: the table of the paper.
        data_set: the paper's name of the data set.
        row: a row of our table, or a method that only the paper measures.
        column: a column of our table.
    """
    measure, _, task = (column.paper_measure or column.measure).rpartition(".")
    if table.settings:
        if row not in table.settings:
            return None
        method, setting = _METHOD_OF_VARIANTS, table.settings[row]
    else:
        method, setting = row, str(column.place.get("train", ""))
    for bits in (column.place.get("bits"), None):
        value = paper_figures().get(_Figure(table.name, data_set, measure, method, setting, task, bits))
        if value is not None:
            return value
    return None


def cited_methods(table: Table) -> list[str]:
    """Methods of the paper's table that are not implemented here."""
    if table.paper is None or table.paper.settings:
        return []
    methods = dict.fromkeys(figure.method for figure in paper_figures() if figure.table == table.paper.name)
    return [method for method in methods if method not in all_methods()]


def cited_label(method: str) -> str:
    """ "UDCMH (cited)": the row is not a measurement of ours."""
    return f"{method[:-1]}, cited)" if method.endswith(")") else f"{method} (cited)"


def trend_of(table: Table, results: Results, row: str, columns: Sequence[Column]) -> tuple[float | None, float | None]:
    """How much a row exceeds the reference row: in the paper, and here.

    Both are means over those of `columns` that the paper has and that were measured here; for a row that was not
    measured, over all that the paper has. The paper's is also a mean over its data sets.
    """
    assert table.paper is not None  # `lay_out_trend` checks it.
    published = {number: _paper_differences(table.paper, row, column) for number, column in enumerate(columns)}
    measured = {}
    for number, column in enumerate(columns):
        own, reference = (results.column_summary(name, column) for name in (row, table.paper.reference))
        if published[number] and own is not None and reference is not None:
            measured[number] = own.mean - reference.mean
    compared = [value for number in measured or published for value in published[number]]
    return (
        statistics.fmean(compared) if compared else None,
        statistics.fmean(measured.values()) if measured else None,
    )


def _paper_differences(table: PaperTable, row: str, column: Column) -> list[float]:
    """The difference of a row to the reference row on each data set of the paper."""
    pairs = [
        [paper_value(table, data_set, name, column) for name in (row, table.reference)]
        for data_set in DATA_SETS.values()
    ]
    return [own - reference for own, reference in pairs if own is not None and reference is not None]


def describe_claims(results: Results) -> list[str]:
    """One line per claim: in how many columns it holds here by at least one deviation, and where not.

    Claims with published figures are in the table of `lay_out_claims`.
    """
    return [_describe_claim(claim, results) for claim in results.experiment.claims if not claim.published]


@dataclass(frozen=True)
class ClosestCall:
    """A claim in one column: the weakest of the better rows against the strongest of the worse ones.

    Attributes:
        column: the column.
        weakest, strongest: the two rows.
        better, worse: their summaries.
        doubt: why the claim does not hold here; None if it holds by at least one deviation.
    """

    column: Column
    weakest: str
    strongest: str
    better: Summary
    worse: Summary
    doubt: str | None

    @property
    def text(self) -> str:
        """ "image to text, 32 bits: λ1 = 1 (75.1 ± 0.3) against λ1 = 0 (74.9 ± 0.2)"."""
        return (
            f"{self.column.name}: {self.weakest} ({format_summary(self.better, self.column)}) against "
            f"{self.strongest} ({format_summary(self.worse, self.column)})"
        )


def judge_claim(claim: Claim, results: Results) -> list[ClosestCall]:
    """The closest call in each column that was measured."""
    calls = []
    # What the two sides have different values of is part of a row's name: "CMIMH, train 5000".
    told_apart = claim.better_place.keys() & claim.worse_place.keys()
    for column in claim.columns:
        better = _summaries(claim.better, claim.better_place, told_apart, column, results)
        worse = _summaries(claim.worse, claim.worse_place, told_apart, column, results)
        if not better or not worse:
            continue
        less_is_better = column.best == "min"
        weakest = (max if less_is_better else min)(better, key=lambda row: better[row].mean)
        strongest = (min if less_is_better else max)(worse, key=lambda row: worse[row].mean)
        doubt = doubt_about(better[weakest], worse[strongest], less_is_better, claim.slack)
        calls.append(ClosestCall(column, weakest, strongest, better[weakest], worse[strongest], doubt))
    return calls


def held_by_means(claims: Sequence[Claim], results: Results) -> tuple[int, int]:
    """In how many columns claims hold by their means, whatever the deviations, and in how many they were measured."""
    held, total = 0, 0
    for claim in claims:
        for call in judge_claim(claim, results):
            gain = call.better.mean - call.worse.mean
            held += (-gain if call.column.best == "min" else gain) + claim.slack > 0
            total += 1
    return held, total


def held_by_a_deviation(claims: Sequence[Claim], results: Results) -> bool:
    """Whether claims hold by at least one deviation in all columns."""
    calls = [call for claim in claims for call in judge_claim(claim, results)]
    return bool(calls) and all(call.doubt is None for call in calls)


def _describe_claim(claim: Claim, results: Results) -> str:
    calls = judge_claim(claim, results)
    if not calls:
        return f"The paper: {claim.text} Here this was not measured."
    exceptions = [call.text for call in calls if call.doubt is not None]
    held = len(calls) - len(exceptions)
    text = f"The paper: {claim.text} Here it holds by at least one deviation in {held} of {len(calls)} columns."
    return f"{text} Exceptions: {'; '.join(exceptions)}." if exceptions else text


def _summaries(
    rows: Sequence[str], place: Place, named: Collection[str], column: Column, results: Results
) -> dict[str, Summary]:
    names = {row: ", ".join([row, *(f"{key} {place[key]}" for key in place if key in named)]) for row in rows}
    summaries = {name: results.summary(row, column.measure, {**column.place, **place}) for row, name in names.items()}
    return {name: summary for name, summary in summaries.items() if summary is not None}
