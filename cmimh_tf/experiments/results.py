"""Results of cells: stored on disk, gathered over seeds, and compared for the verdict."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.experiments.experiment import Cell, Column, Experiment, Place, Point
from cmimh_tf.files import read_json, write_json


@dataclass(frozen=True)
class CellStore:
    """The folder with the results of all cells that were measured on one data set. Each file is written atomically.

    Attributes:
        folder: has <stem>.json or <stem>.failed.json, and <stem>.log, for each cell.
        data_fingerprint: of the data set.
    """

    folder: Path
    data_fingerprint: str

    def path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.file_stem(self.data_fingerprint)}.json"

    def log_path(self, cell: Cell) -> Path:
        return self.path(cell).with_suffix(".log")

    def failure_path(self, cell: Cell) -> Path:
        return self.path(cell).with_suffix(".failed.json")

    def load(self, cell: Cell) -> dict[str, Any] | None:
        """The result of a cell, or None if it was not measured yet.

        Raises:
            ValueError: if the file does not hold a result; the message names it.
        """
        path = self.path(cell)
        try:
            result = read_json(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{error} To measure the cell again, delete the file.") from error
        if "metrics" not in result:
            raise ValueError(f"{path} must hold the result of a cell, with `metrics`. Delete it to measure again.")
        return result

    def save(self, cell: Cell, result: dict[str, Any]) -> None:
        """Writes the result of a cell and removes the record of an earlier failure."""
        write_json(self.path(cell), {"cell": cell.identity(self.data_fingerprint), **result}, checksum=True)
        self.failure_path(cell).unlink(missing_ok=True)

    def save_failure(self, cell: Cell, error: str) -> None:
        """Records why a cell failed. The next run tries it again."""
        write_json(self.failure_path(cell), {"cell": cell.identity(self.data_fingerprint), "error": error})


@dataclass(frozen=True)
class Summary:
    """A measure over seeds.

    Attributes:
        mean: over the seeds.
        deviation: sample standard deviation (n - 1); None for one seed.
        count: number of seeds.
        missing: seeds that failed or were not run. They do not count in the fields above.
    """

    mean: float
    deviation: float | None
    count: int
    missing: int = 0


def summarise(values: Sequence[float], missing: int = 0) -> Summary:
    """Mean and sample standard deviation of at least one value."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Summary(statistics.fmean(values), deviation, len(values), missing)


@dataclass(frozen=True)
class Results:
    """The results of an experiment, without the cells that failed or were not run.

    Attributes:
        experiment: the experiment.
        by_cell: the stored result of each cell.
    """

    experiment: Experiment
    by_cell: Mapping[Cell, Mapping[str, Any]]

    def points(self, row: str | None, place: Place) -> list[Point]:
        """The points of a row, or of all rows for None, at a place."""
        return [
            point
            for point in self.experiment.points
            if row in (None, point.row) and all(point.place.get(key) == value for key, value in place.items())
        ]

    def metrics(self, point: Point) -> Mapping[str, Any]:
        """The metrics of a point; empty if its cell has no result."""
        metrics = self.by_cell.get(point.cell, {}).get("metrics", {})
        return metrics.get(point.within, {}) if point.within else metrics

    def measured(self, row: str | None, place: Place) -> Iterator[Mapping[str, Any]]:
        """The results at `points` that exist."""
        for point in self.points(row, place):
            if point.cell in self.by_cell:
                yield {**self.by_cell[point.cell], "metrics": self.metrics(point)}

    def values(self, row: str | None, measure: str, place: Place) -> list[float]:
        """One value per seed, without undefined ones."""
        found = (look_up(result["metrics"], measure) for result in self.measured(row, place))
        return [value for value in found if value is not None]

    def summary(self, row: str | None, measure: str, place: Place) -> Summary | None:
        """Over the seeds; None if there is no value."""
        values = self.values(row, measure, place)
        missing = sum(point.cell not in self.by_cell for point in self.points(row, place))
        return summarise(values, missing) if values else None

    def column_summary(self, row: str, column: Column) -> Summary | None:
        """The entry of a table, not scaled."""
        return self.summary(row, column.measure, column.place)


def look_up(metrics: Mapping[str, Any], measure: str) -> float | None:
    """The number at a dotted path; None if there is none.

    Args:
        metrics: nested dictionaries.
        measure: such as "map_at_1000.image_to_text", or "precision_at_100.image_to_text" for a point of the curve.
    """
    name, _, task = measure.partition(".")
    if name.startswith("precision_at_") and name not in metrics:
        curve = metrics.get("precision_at_k", {})
        cutoff = int(name.removeprefix("precision_at_"))
        return dict(zip(curve["k"], curve[task], strict=True)).get(cutoff) if task in curve else None
    value: Any = metrics
    for key in measure.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return float(value) if isinstance(value, int | float) else None


def format_summary(summary: Summary, column: Column) -> str:
    """ "81.7 ± 0.5", "81.7" for one seed, or "81.7 ± 0.5 (2 of 3 seeds)" if results are missing."""
    text = f"{column.scale * summary.mean:.{column.digits}f}"
    if summary.deviation is not None:
        text += f" ± {column.scale * summary.deviation:.{column.digits}f}"
    if summary.missing:
        text += f" ({summary.count} of {summary.count + summary.missing} seeds)"
    return text


def describe_verdict(results: Results) -> list[str]:
    """Compares the experiment's contender with all rivals in each headline column.

    The contender is first by at least one deviation if its mean exceeds every rival's by the larger of the two sample
    standard deviations. References such as upper bounds are not rivals.

    Args:
        results: of an experiment.

    Returns:
        A summary line, and a line for each column in which the contender is not clearly first. Empty without a
        contender.
    """
    experiment = results.experiment
    contender = experiment.contender
    if contender is None:
        return []
    references = {row for table in experiment.tables for row in table.references}
    rivals = list(dict.fromkeys(p.row for p in experiment.points if p.row != contender and p.row not in references))
    clear, judged, exceptions = 0, 0, []
    for column in experiment.headline:
        own = results.column_summary(contender, column)
        others = {row: summary for row in rivals if (summary := results.column_summary(row, column)) is not None}
        if own is None or not others:
            continue
        judged += 1
        by_mean = sorted(others, key=lambda row: others[row].mean, reverse=True)
        doubts = [(row, doubt) for row in by_mean if (doubt := doubt_about(own, others[row])) is not None]
        if doubts:
            rival, doubt = doubts[0]
            figures = f"{contender} {format_summary(own, column)}, {rival} {format_summary(others[rival], column)}"
            exceptions.append(f"{column.name}: {doubt} ({figures}).")
        else:
            clear += 1
    if not judged:
        return []
    return [f"{contender} is first by at least one deviation in {clear} of {judged} cross-modal cells.", *exceptions]


def doubt_about(own: Summary, other: Summary, less_is_better: bool = False, slack: float = 0.0) -> str | None:
    """Why `own` is not clearly better than `other`; None if it is better by at least one deviation.

    Args:
        own: the summary that should be better.
        other: the one that should be worse.
        less_is_better: whether a smaller mean is better.
        slack: added to `own`'s advantage.
    """
    difference = (other.mean - own.mean if less_is_better else own.mean - other.mean) + slack
    if difference <= 0:
        return "not first"
    if own.missing or other.missing:
        return "first, with seeds missing"
    if own.deviation is None or other.deviation is None:
        return "first, with one seed and so no deviation"
    return None if difference >= max(own.deviation, other.deviation) else "first by less than one deviation"
