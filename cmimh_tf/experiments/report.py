"""Writes the results of an experiment: results.csv, results.json, results.md, report.html and the plots."""

import csv
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.experiments.options import DataFacts
from cmimh_tf.experiments.paper import data_set_of, describe_claims
from cmimh_tf.experiments.results import Results, describe_verdict
from cmimh_tf.experiments.tables import TableText, describe_trend, lay_out, lay_out_claims, lay_out_trend
from cmimh_tf.files import write_bytes, write_json, write_text

_CURVES = ("precision_at_k", "precision_recall")
_LISTED_WARNINGS = 8


@dataclass(frozen=True)
class RunFacts:
    """How the results were made.

    Attributes:
        command: the command line.
        data: the data set.
        base: configuration that the variants of CMIMH start from.
        jobs: cells at a time.
        threads: of each; None is unlimited.
        failures: names of the cells that failed, with their errors.
    """

    command: str
    data: DataFacts
    base: CMIMHConfig
    jobs: int
    threads: int | None
    failures: Mapping[str, str]


@dataclass(frozen=True)
class Report:
    """The text of a report, before it is rendered to Markdown, HTML or the terminal.

    Attributes:
        results: the results.
        facts: how they were made.
        tables: the paper's claims that have published figures; the tables; the trends of the paper's tables.
        findings: the verdict and the paper's claims, as sentences.
        notes: further remarks, such as warnings of trainings.
    """

    results: Results
    facts: RunFacts
    tables: Sequence[TableText]
    findings: Sequence[str]
    notes: Sequence[str]


def make_report(results: Results, facts: RunFacts) -> Report:
    """Lays out tables and sentences.

    On a data set of the paper, its values stand beside ours. On any other, the trend of the paper's table does.
    """
    data_set = data_set_of(facts.data.title)
    tables = [lay_out(table, results, data_set) for table in results.experiment.tables]
    trends: list[TableText] = []
    if data_set is None:
        laid_out = (lay_out_trend(table, results) for table in results.experiment.tables)
        trends = [trend for trend in laid_out if trend is not None]
    tables = [*lay_out_claims(results), *(table for table in tables if table.rows)]
    findings = [*describe_verdict(results), *map(describe_trend, trends), *describe_claims(results)]
    return Report(results, facts, [*tables, *trends], findings, _notes(results, facts, data_set, bool(trends)))


def write_report(report: Report, folder: Path) -> None:
    """Writes all files of an experiment, each atomically."""
    from cmimh_tf.reports.plot_style import to_svg

    plots = [(plot, to_svg(plot.draw(report.results))) for plot in report.results.experiment.plots]
    for plot, svg in plots:
        write_bytes(folder / f"{plot.name}.svg", svg)
    write_text(folder / "results.csv", _to_csv(report.results))
    write_json(folder / "results.json", _to_json(report))
    write_text(folder / "results.md", _to_markdown(report))
    write_text(folder / "report.html", _to_html(report, [(svg, plot.alt) for plot, svg in plots]))


def to_terminal(report: Report) -> str:
    """Tables and findings for the terminal."""
    return "\n\n".join([*(table.to_terminal() for table in report.tables), "\n".join(report.findings)]).rstrip()


def flat_measures(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Dotted paths and numbers of a cell's metrics, without curves.

    Args:
        metrics: nested dictionaries.
        prefix: start of each path.
    """
    for name, value in metrics.items():
        if name in _CURVES:
            continue
        if isinstance(value, Mapping):
            yield from flat_measures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


def _to_csv(results: Results) -> str:
    """One line per cell and measure, ready for a spreadsheet or a data frame to pivot."""
    keys = list(dict.fromkeys(key for point in results.experiment.points for key in point.place))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["experiment", "row", *keys, "seed", "measure", "value"])
    for point in results.experiment.points:
        if point.cell not in results.by_cell:
            continue
        head = [results.experiment.name, point.row, *(point.place.get(key, "") for key in keys), point.cell.seed]
        for measure, value in flat_measures(results.metrics(point)):
            writer.writerow([*head, measure, repr(value)])
    return text.getvalue()


def _to_json(report: Report) -> dict[str, Any]:
    results, facts = report.results, report.facts
    return {
        "experiment": results.experiment.name,
        "about": results.experiment.about,
        "command": facts.command,
        "data": {"name": facts.data.name, "fingerprint": facts.data.fingerprint},
        "jobs": facts.jobs,
        "threads": facts.threads,
        "notes": [*report.findings, *report.notes],
        "failures": dict(facts.failures),
        "base_config": facts.base.to_dict(),
        "cells": [
            {
                "row": point.row,
                "place": dict(point.place),
                **point.cell.identity(facts.data.fingerprint),
                **{key: value for key, value in results.by_cell[point.cell].items() if key != "cell"},
            }
            for point in results.experiment.points
            if point.cell in results.by_cell
        ],
    }


def _to_markdown(report: Report) -> str:
    experiment, facts = report.results.experiment, report.facts
    parts = [f"# {experiment.title} ({facts.data.title})\n", f"{experiment.about}\n", f"    {facts.command}\n"]
    parts.append("\n".join(f"- {key}: {value}" for key, value in _run_details(report).items()) + "\n")
    parts += [table.to_markdown() for table in report.tables]
    if report.findings or report.notes:
        parts.append("\n".join(f"- {line}" for line in (*report.findings, *report.notes)) + "\n")
    parts += [f"![{plot.alt}]({plot.name}.svg)\n" for plot in experiment.plots]
    return "\n".join(parts)


def _to_html(report: Report, plots: Sequence[tuple[bytes, str]]) -> str:
    from cmimh_tf.reports.html import render
    from cmimh_tf.reports.plot_style import svg_data_uri

    return render(
        "experiment.html",
        title=f"{report.results.experiment.title} ({report.facts.data.title})",
        about=report.results.experiment.about,
        tables=report.tables,
        findings=report.findings,
        notes=report.notes,
        plots=[(svg_data_uri(svg), alt) for svg, alt in plots],
        details={"command": report.facts.command, **_run_details(report)},
        config=json.dumps(report.facts.base.to_dict(), indent=2),
    )


def _run_details(report: Report) -> dict[str, str]:
    data = report.facts.data
    # From the cells: earlier commands may have measured some of them with another number of jobs.
    threads = _thread_list({result.get("threads") for result in report.results.by_cell.values()})
    return {
        "data": f"{data.title}, {data.num_pairs:,} pairs, fingerprint {data.fingerprint}",
        "entries": "mean ± sample standard deviation over seeds; the best mean of a column is bold; ties in distance "
        "are ordered by a seeded shuffle",
        "threads per cell": f"{threads}; the same seed and number of threads give the same figures",
    }


def _notes(results: Results, facts: RunFacts, data_set: str | None, has_trends: bool) -> list[str]:
    notes = []
    if data_set is not None and any(table.paper for table in results.experiment.tables):
        notes.append(
            f"In brackets, and in rows marked as cited: the paper's values on {data_set}, for its own features and "
            "splits."
        )
    if has_trends:
        notes.append(
            "The paper has other data sets in this setting. The trend compares differences to one row, averaged over "
            "the code lengths that both have, and in the paper over its data sets."
        )
    sources = {str(result.get("source")) for result in results.by_cell.values()}
    if len(sources) > 1:
        notes.append(
            f"These cells were measured by {len(sources)} versions of the code. To measure all of them with one, "
            "delete the folder `cells` and run the command again."
        )
    threads = {result.get("threads") for result in results.by_cell.values()}
    if len(threads) > 1:
        notes.append(
            f"These cells ran on different numbers of threads ({_thread_list(threads)}), which changes results "
            "slightly even for equal seeds."
        )
    notes += _warnings(results)
    notes += _constant_bits(results)
    notes += [f"Failed: {name}: {error}" for name, error in facts.failures.items()]
    return notes


def _warnings(results: Results) -> list[str]:
    """The warnings of trainings. A kind that many of them ended with, such as "dead bits", is counted instead."""
    kinds: dict[str, list[str]] = {}
    for cell, name in results.experiment.names.items():
        for problem in results.by_cell.get(cell, {}).get("training", {}).get("problems", ()):
            kinds.setdefault(problem.partition(":")[0], []).append(f"{name} ended with a warning. {problem}")
    notes = []
    for kind, warnings in kinds.items():
        if len(warnings) > _LISTED_WARNINGS:
            notes.append(f'The warning "{kind}" was given {len(warnings)} times; results.json has all. The first:')
            warnings = warnings[:1]
        notes += warnings
    return notes


def _constant_bits(results: Results) -> list[str]:
    """The rows whose codes have bits that never change. Such bits carry no information."""
    notes = []
    for row in dict.fromkeys(point.row for point in results.experiment.points):
        worst: dict[str, int] = {}
        for point in results.points(row, {}):
            statistics = results.metrics(point).get("code_statistics", {})
            for modality, values in statistics.items():
                place = f"{{}} of {point.cell.code_length} {modality} bits"
                worst[place] = max(worst.get(place, 0), values.get("constant_bits", 0))
        found = [place.format(count) for place, count in worst.items() if count]
        if found:
            notes.append(f"{row} has bits that are the same for all database items, at most {', '.join(found)}.")
    return notes


def _thread_list(threads: Collection[int | None]) -> str:
    """ "1", "1 and 2", "2 and all cores"."""
    limited = sorted(count for count in threads if count is not None)
    return " and ".join([*map(str, limited), *(["all cores"] if None in threads else [])])
