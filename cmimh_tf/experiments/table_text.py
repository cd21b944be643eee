"""Tables as text: Markdown and HTML from the same entries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from cmimh_tf.experiments.experiment import Column, Table
from cmimh_tf.experiments.published import published_figure, published_label
from cmimh_tf.experiments.published_figures import PublishedRow
from cmimh_tf.experiments.results import Results, Summary
from cmimh_tf.experiments.standing import format_summary

_MISSING = "–"


@dataclass(frozen=True)
class TableText:
    """A table whose entries are text.

    Attributes:
        title: what it shows.
        corner: heading of the row labels.
        groups: for each column the heading above it.
        titles: for each column its own heading.
        rows: label, entries and which of them are bold.
    """

    title: str
    corner: str
    groups: Sequence[str]
    titles: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str], Sequence[bool]]]


def lay_out(table: Table, results: Results, published: Sequence[PublishedRow] = ()) -> TableText:
    """Fills a table.

    Args:
        table: its layout.
        results: of the experiment.
        published: rows of published figures to put under ours.
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
        entries = [_entry(summaries[row, number], column) for number, column in enumerate(table.columns)]
        if any(entry != _MISSING for entry in entries):
            bold = [row not in table.references and entry == best[number] for number, entry in enumerate(entries)]
            rows.append((row, entries, bold))
    for published_row in published:
        figures = [published_figure(published_row, column) for column in table.columns]
        if any(figure is not None for figure in figures):
            entries = [_MISSING if figure is None else f"{figure:.1f}" for figure in figures]
            rows.append((published_label(published_row), entries, [False] * len(entries)))
    groups, titles = [column.group for column in table.columns], [column.title for column in table.columns]
    return TableText(table.title, table.corner, groups, titles, rows)


def to_markdown(text: TableText) -> str:
    """A GitHub table; groups stand before the titles, as it has one heading row."""
    head = [
        " ".join(part for part in (group, title) if part) for group, title in zip(text.groups, text.titles, strict=True)
    ]
    lines = [f"| {' | '.join([text.corner, *head])} |", "|---" * (1 + len(head)) + "|"]
    for label, entries, bold in text.rows:
        shown = [f"**{entry}**" if is_bold else entry for entry, is_bold in zip(entries, bold, strict=True)]
        lines.append(f"| {' | '.join([label.replace('|', '/'), *shown])} |")
    return f"### {text.title}\n\n" + "\n".join(lines) + "\n"


def to_html(text: TableText) -> str:
    """A table with two heading rows."""
    spans = [(group, len(list(members))) for group, members in groupby(text.groups)]
    over = "".join(f'<th scope="colgroup" colspan="{count}">{escape(group)}</th>' for group, count in spans)
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in text.titles)
    rows = []
    for label, entries, bold in text.rows:
        shown = "".join(
            f"<td><b>{escape(entry)}</b></td>" if is_bold else f"<td>{escape(entry)}</td>"
            for entry, is_bold in zip(entries, bold, strict=True)
        )
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{shown}</tr>')
    top = f"<tr><th></th>{over}</tr>" if any(text.groups) else ""
    body = f"{top}<tr><th>{escape(text.corner)}</th>{head}</tr>{''.join(rows)}"
    return f'<div class="scroll"><table>{body}</table></div>'


def _entry(summary: Summary | None, column: Column) -> str:
    return _MISSING if summary is None else format_summary(summary, column.scale, column.digits)


def _best(column: Column, summaries: Mapping[str, Summary | None]) -> str | None:
    """The entry with the best mean, as text, so that entries that read the same are all bold."""
    known = [summary for summary in summaries.values() if summary is not None]
    if column.best is None or len(known) < 2:
        return None
    choose = max if column.best == "max" else min
    return _entry(choose(known, key=lambda summary: summary.mean), column)
