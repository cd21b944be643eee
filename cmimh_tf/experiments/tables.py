"""Tables of results as text, with the paper's values or the trend of the paper's table beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from cmimh_tf.experiments.experiment import Claim, Column, Table
from cmimh_tf.experiments.paper import (
    cited_label,
    cited_methods,
    held_by_a_deviation,
    held_by_means,
    judge_claim,
    paper_value,
    trend_of,
)
from cmimh_tf.experiments.results import Results, Summary, format_summary

MISSING = "–"


@dataclass(frozen=True)
class Entry:
    """An entry of a table.

    Attributes:
        text: the value.
        is_best: whether it is the best of its column.
        paper: the paper's value, or None.
    """

    text: str
    is_best: bool = False
    paper: str | None = None


@dataclass(frozen=True)
class TableText:
    """A table whose entries are text.

    Attributes:
        title: what it shows.
        corner: heading of the row labels.
        groups: for each column the heading above it.
        titles: for each column its own heading.
        rows: labels and entries.
    """

    title: str
    corner: str
    groups: Sequence[str]
    titles: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Entry]]]

    @property
    def group_spans(self) -> list[tuple[str, int]]:
        """Each heading above the columns, with the number of columns below it."""
        return [(group, len(list(members))) for group, members in groupby(self.groups)]

    def to_markdown(self) -> str:
        """A GitHub table. It has one heading row, so the group precedes the title."""
        heads = [" ".join(filter(None, pair)) for pair in zip(self.groups, self.titles, strict=True)]
        lines = [f"| {' | '.join([self.corner, *heads])} |", "|---" * (1 + len(heads)) + "|"]
        for label, entries in self.rows:
            shown = [
                (f"**{entry.text}**" if entry.is_best else entry.text) + (f" [{entry.paper}]" if entry.paper else "")
                for entry in entries
            ]
            lines.append(f"| {' | '.join([label.replace('|', '/'), *shown])} |")
        return f"### {self.title}\n\n" + "\n".join(lines) + "\n"

    def to_terminal(self) -> str:
        """Aligned columns, one block per group so that lines stay short."""
        lines, start = [self.title], 0
        width = max(map(len, [self.corner, *self.groups, *(label for label, _ in self.rows)]))
        for group, count in self.group_spans:
            columns = range(start, start + count)
            shown = [
                [_plain(entries[number]) for number in columns]
                for _, entries in self.rows
            ]  # fmt: skip
            heads = [self.titles[number] for number in columns]
            widths = [max(map(len, column)) for column in zip(heads, *shown, strict=True)]
            lines.append("  ".join([(group or self.corner).ljust(width), *_right(heads, widths)]).rstrip())
            lines += [
                "  ".join([label.ljust(width), *_right(texts, widths)]).rstrip()
                for (label, _), texts in zip(self.rows, shown, strict=True)
            ]
            start += count
        return "\n".join(lines)


def lay_out(table: Table, results: Results, data_set: str | None = None) -> TableText:
    """Fills a table.

    Args:
        table: its layout.
        results: of the experiment.
        data_set: the paper's name of the data set, if it is one of the paper's. The paper's values are then added to
            the entries, and the methods that the paper cites are added as rows.
    """
    summaries = {
        (row, number): results.column_summary(row, column)
        for row in table.rows
        for number, column in enumerate(table.columns)
    }
    best = {
        number: _best(column, {row: summaries[row, number] for row in table.rows if row not in table.references})
        for number, column in enumerate(table.columns)
    }
    rows = []
    for row in table.rows:
        entries = []
        for number, column in enumerate(table.columns):
            text = _text(summaries[row, number], column)
            is_best = row not in table.references and text == best[number]
            entries.append(Entry(text, is_best, _paper_text(table, data_set, row, column)))
        if any(entry.text != MISSING for entry in entries):
            rows.append((row, entries))
    for method in cited_methods(table):
        cited = [_paper_text(table, data_set, method, column) for column in table.columns]
        if any(cited):
            rows.append((cited_label(method), [Entry(text or MISSING) for text in cited]))
    groups, titles = [column.group for column in table.columns], [column.title for column in table.columns]
    return TableText(table.title, table.corner, groups, titles, rows)


def lay_out_trend(table: Table, results: Results) -> TableText | None:
    """The difference of each row to the reference row, in the paper and here; None without figures to compare.

    Each value is the mean over the columns of a group, see `trend_of`.

    Args:
        table: its layout.
        results: of the experiment.
    """
    if table.paper is None:
        return None
    groups: dict[str, list[Column]] = {}
    for column in table.columns:
        groups.setdefault(column.group, []).append(column)
    rows = []
    for row in [*table.rows, *cited_methods(table)]:
        if row == table.paper.reference:
            continue
        label = row if row in table.rows else cited_label(row)
        rows.append((label, {name: _differences(table, results, row, columns) for name, columns in groups.items()}))
    known = [name for name in groups if any(cells[name][0] != MISSING for _, cells in rows)]
    kept = [
        (label, [Entry(text) for name in known for text in cells[name]])
        for label, cells in rows
        if any(cells[name][0] != MISSING for name in known)
    ]
    if all(entry.text == MISSING for _, entries in kept for entry in entries[1::2]):
        return None
    title = f'Trend: {table.title}, difference to "{table.paper.reference}"'
    heads = [(name, side) for name in known for side in ("paper", "here")]
    return TableText(title, table.corner, [name for name, _ in heads], [side for _, side in heads], kept)


def lay_out_claims(results: Results) -> list[TableText]:
    """The claims with published figures, one table per subject: the paper's figures, ours, and whether each holds.

    A claim holds if it does by at least one deviation in each of its columns. With several subjects, a table that
    counts the claims of each comes first.
    """
    experiment, subjects = results.experiment, _claims_by_subject(results)
    titles = ["the paper", "here: the closest call in each column", "holds"]
    tables = [_count_claims(subjects, results)] if len(subjects) > 1 else []
    for subject, claims in subjects.items():
        if experiment.detailed is not None and subject not in experiment.detailed:
            continue
        rows = []
        for claim in claims:
            if calls := judge_claim(claim, results):
                held = sum(call.doubt is None for call in calls)
                holds = f"{'yes' if held == len(calls) else 'no'}, {held} of {len(calls)}"
                texts = claim.published, "; ".join(call.text for call in calls), holds
                rows.append((claim.text, [Entry(text) for text in texts]))
        if rows:
            title = f"The paper's claims: {subject}" if subject else "The paper's claims"
            tables.append(TableText(title, "claim", [""] * 3, titles, rows))
    return tables


def _claims_by_subject(results: Results) -> dict[str, list[Claim]]:
    subjects: dict[str, list[Claim]] = {}
    for claim in results.experiment.claims:
        if claim.published:
            subjects.setdefault(claim.subject, []).append(claim)
    return subjects


def _count_claims(subjects: Mapping[str, Sequence[Claim]], results: Results) -> TableText:
    """For each subject in how many columns each claim holds by the means, and how many claims hold in all of them.

    For the subjects that are shown in full, also how many claims hold by at least one deviation.
    """
    headings = list(dict.fromkeys(claim.short for claims in subjects.values() for claim in claims))
    detailed = results.experiment.detailed
    rows = []
    for subject, claims in subjects.items():
        groups = [[claim for claim in claims if claim.short == heading] for heading in headings]
        counts = [held_by_means(group, results) for group in groups]
        entries = [Entry(f"{held} of {total}" if total else MISSING, 0 < held == total) for held, total in counts]
        certain = MISSING
        if detailed is None or subject in detailed:
            certain = str(sum(held_by_a_deviation(group, results) for group in groups))
        satisfied = str(sum(0 < held == total for held, total in counts))
        rows.append((subject, [*entries, Entry(satisfied), Entry(certain)]))
    title = "Columns in which each claim holds by its means; bold where it does in all"
    titles = [*headings, "claims", "by a deviation"]
    return TableText(title, "subject", [""] * len(titles), titles, rows)


def describe_trend(trend: TableText) -> str:
    """In how many entries our difference has the sign of the paper's."""
    pairs = [
        (paper.text, here.text)
        for _, entries in trend.rows
        for paper, here in zip(entries[::2], entries[1::2], strict=True)
        if MISSING not in (paper.text, here.text)
    ]
    agree = sum(float(paper) * float(here) > 0 for paper, here in pairs)
    return f"{trend.title}: the sign is that of the paper in {agree} of {len(pairs)} entries."


def _differences(table: Table, results: Results, row: str, columns: Sequence[Column]) -> tuple[str, str]:
    column = columns[0]
    values = trend_of(table, results, row, columns)
    paper, ours = (MISSING if value is None else f"{column.scale * value:+.{column.digits}f}" for value in values)
    return paper, ours


def _paper_text(table: Table, data_set: str | None, row: str, column: Column) -> str | None:
    value = None
    if table.paper is not None and data_set is not None:
        value = paper_value(table.paper, data_set, row, column)
    return None if value is None else f"{column.scale * value:.{column.digits}f}"


def _text(summary: Summary | None, column: Column) -> str:
    return MISSING if summary is None else format_summary(summary, column)


def _best(column: Column, summaries: Mapping[str, Summary | None]) -> str | None:
    """The text of the entry with the best mean, so that entries that read the same are all bold."""
    known = [summary for summary in summaries.values() if summary is not None]
    if column.best is None or len(known) < 2:
        return None
    choose = max if column.best == "max" else min
    return _text(choose(known, key=lambda summary: summary.mean), column)


def _plain(entry: Entry) -> str:
    return f"{entry.text} [{entry.paper}]" if entry.paper else entry.text


def _right(texts: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [text.rjust(width) for text, width in zip(texts, widths, strict=True)]
