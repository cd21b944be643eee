"""What an experiment leaves behind: results.csv, results.json, results.md, report.html and the figures."""

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.atomic import write_bytes, write_json, write_text
from cmimh_tf.config import CMIMHConfig
from cmimh_tf.experiments.data_facts import DataFacts
from cmimh_tf.experiments.experiment import Experiment
from cmimh_tf.experiments.page import render_page
from cmimh_tf.experiments.published import data_set_of, published_label, published_rows
from cmimh_tf.experiments.results import Results
from cmimh_tf.experiments.standing import describe_standing
from cmimh_tf.experiments.table_text import TableText, lay_out, to_markdown

_SKIPPED_MEASURES = ("precision_at_k", "precision_recall")


@dataclass(frozen=True)
class Circumstances:
    """How the results came about.

    Attributes:
        command: what was typed.
        data: what was measured on.
        base: configuration that the variants of CMIMH start from.
        jobs: cells at a time.
        threads: of each; None is unlimited.
        failures: titles of cells that failed, with their errors.
    """

    command: str
    data: DataFacts
    base: CMIMHConfig
    jobs: int
    threads: int | None
    failures: Mapping[str, str]


def write_output(results: Results, circumstances: Circumstances, folder: Path) -> None:
    """Writes all files of an experiment; each is replaced as a whole.

    Args:
        results: what is known.
        circumstances: how it came about.
        folder: where to.
    """
    experiment = results.experiment
    texts = [
        lay_out(table, results, published_rows(circumstances.data.title, table.published))
        for table in experiment.tables
    ]
    notes, facts = [*describe_standing(results), *_notes(results, circumstances)], _facts(results, circumstances)
    write_text(folder / "results.csv", _to_csv(results))
    write_json(folder / "results.json", _to_json(results, circumstances, notes))
    figures = _draw(results)
    for name, svg, _ in figures:
        write_bytes(folder / name, svg)
    alts = {name: alt for name, _, alt in figures}
    write_text(folder / "results.md", _to_markdown(experiment, circumstances, facts, texts, notes, alts))
    pictures = [(svg, alt) for _, svg, alt in figures]
    page = render_page(experiment, texts, notes, facts, circumstances.base, pictures)
    write_text(folder / "report.html", page)


def flat_measures(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Dotted paths and numbers of a cell's metrics, without curves.

    Args:
        metrics: nested dictionaries.
        prefix: what the paths begin with.
    """
    for name, value in metrics.items():
        if name in _SKIPPED_MEASURES:
            continue
        if isinstance(value, Mapping):
            yield from flat_measures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


def _to_csv(results: Results) -> str:
    """One line a cell and measure: what a spreadsheet or a data frame pivots."""
    keys = list(dict.fromkeys(key for point in results.experiment.points for key in point.place))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["experiment", "row", *keys, "seed", "measure", "value"])
    for point in results.experiment.points:
        if point.cell not in results.by_cell:
            continue
        head = [results.experiment.name, point.row, *(point.place.get(key, "") for key in keys), point.cell.seed]
        for measure, value in flat_measures(results.by_cell[point.cell]["metrics"]):
            writer.writerow([*head, measure, repr(value)])
    return text.getvalue()


def _to_json(results: Results, circumstances: Circumstances, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "experiment": results.experiment.name,
        "about": results.experiment.about,
        "command": circumstances.command,
        "data": {"name": circumstances.data.name, "fingerprint": circumstances.data.fingerprint},
        "jobs": circumstances.jobs,
        "threads": circumstances.threads,
        "notes": list(notes),
        "failures": dict(circumstances.failures),
        "base_config": circumstances.base.to_dict(),
        "cells": [
            {
                "row": point.row,
                "place": dict(point.place),
                **point.cell.identity(circumstances.data.fingerprint),
                **{key: value for key, value in results.by_cell[point.cell].items() if key != "cell"},
            }
            for point in results.experiment.points
            if point.cell in results.by_cell
        ],
    }


def _to_markdown(
    experiment: Experiment,
    circumstances: Circumstances,
    facts: dict[str, str],
    texts: Sequence[TableText],
    notes: Sequence[str],
    figures: Mapping[str, str],
) -> str:
    parts = [f"# {experiment.title} ({circumstances.data.title})\n", f"{experiment.about}\n"]
    parts.append(f"    {circumstances.command}\n")
    parts += [f"- {key}: {value}" for key, value in facts.items() if key != "command"]
    parts.append("")
    parts += [to_markdown(text) for text in texts]
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes) + "\n")
    parts += [f"![{alt}]({name})\n" for name, alt in figures.items()]
    return "\n".join(parts)


def _facts(results: Results, circumstances: Circumstances) -> dict[str, str]:
    data = circumstances.data
    # As the cells say: they may have been measured by earlier commands with another number of jobs.
    threads = _thread_list({result.get("threads") for result in results.by_cell.values()})
    return {
        "command": circumstances.command,
        "data": f"{data.title}, {data.num_pairs:,} pairs, fingerprint {data.fingerprint}",
        "entries": "mean ± sample standard deviation over seeds; the best mean of a column is bold; ties in distance "
        "are ordered by a seeded shuffle",
        "threads of a cell": f"{threads}; a seed gives the same figures again with the same number",
    }


def _thread_list(threads: Collection[int | None]) -> str:
    """ "1", "1 and 2", "2 and all cores"."""
    limited = sorted(count for count in threads if count is not None)
    return " and ".join([*map(str, limited), *(["all cores"] if None in threads else [])])


def _constant_bits(results: Results) -> list[str]:
    """Which rows have codes with bits that never change: they say nothing, and their method is judged by the rest."""
    notes = []
    for row in dict.fromkeys(point.row for point in results.experiment.points):
        worst: dict[str, int] = {}
        for point in results.points(row, {}):
            statistics = results.by_cell.get(point.cell, {}).get("metrics", {}).get("code_statistics", {})
            for modality, values in statistics.items():
                place = f"{{}} of {point.cell.code_length} {modality} bits"
                worst[place] = max(worst.get(place, 0), values.get("constant_bits", 0))
        told = [place.format(count) for place, count in worst.items() if count]
        if told:
            notes.append(f"{row} has bits that are the same for all database items, at most {', '.join(told)}.")
    return notes


def _notes(results: Results, circumstances: Circumstances) -> list[str]:
    notes = []
    title = circumstances.data.title
    tables = results.experiment.tables
    for setting in dict.fromkeys(table.published for table in tables if table.published):
        rows = published_rows(title, setting)
        notes += [f"{published_label(row)}: {row.source}." for row in rows]
        if data_set_of(title) is not None and not rows:
            notes.append("No published figures of this setting are on file for this data set.")
    sources = {str(result.get("source")) for result in results.by_cell.values()}
    if len(sources) > 1:
        notes.append(
            f"These cells were measured by {len(sources)} versions of the code. To measure all by one, delete the "
            "folder `cells` and give the command again."
        )
    threads = {result.get("threads") for result in results.by_cell.values()}
    if len(threads) > 1:
        notes.append(
            f"These cells ran on different numbers of threads ({_thread_list(threads)}), so that those of equal seeds "
            "may differ in more than what is compared."
        )
    notes += [
        f"{name} ended with a warning. {problem}"
        for cell, name in results.experiment.names.items()
        for problem in results.by_cell.get(cell, {}).get("training", {}).get("problems", ())
    ]
    notes += _constant_bits(results)
    notes += [f"Failed: {name}: {error}" for name, error in circumstances.failures.items()]
    return notes


def _draw(results: Results) -> list[tuple[str, bytes, str]]:
    """The pictures: file name, SVG, and what it shows."""
    from cmimh_tf.reports.style import to_svg

    return [
        (f"{picture.name}.svg", to_svg(picture.draw(results)), picture.alt) for picture in results.experiment.pictures
    ]
