"""Results of an experiment's cells, gathered over seeds."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cmimh_tf.experiments.cell import Cell
from cmimh_tf.experiments.experiment import Column, Experiment, Place, Point


@dataclass(frozen=True)
class Summary:
    """A measure over seeds.

    Attributes:
        mean: over the seeds.
        deviation: sample standard deviation (n - 1); None for one seed.
        count: number of seeds.
    """

    mean: float
    deviation: float | None
    count: int


def summarise(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation of at least one value."""
    return Summary(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Results:
    """What is known of an experiment; cells that failed or were not run are missing.

    Attributes:
        experiment: the experiment.
        by_cell: results of cells, as stored.
    """

    experiment: Experiment
    by_cell: Mapping[Cell, Mapping[str, Any]]

    def measured(self, row: str, place: Place) -> Iterator[tuple[Point, Mapping[str, Any]]]:
        """The points of a row at a place that have a result, with it."""
        for point in self.experiment.points:
            matches = point.row == row and all(point.place.get(key) == value for key, value in place.items())
            if matches and point.cell in self.by_cell:
                yield point, self.by_cell[point.cell]

    def values(self, row: str, measure: str, place: Place) -> list[float]:
        """One value a seed; those that are undefined are left out."""
        found = (look_up(result["metrics"], measure) for _, result in self.measured(row, place))
        return [value for value in found if value is not None]

    def summary(self, row: str, measure: str, place: Place) -> Summary | None:
        """Over the seeds; None if there is no value."""
        values = self.values(row, measure, place)
        return summarise(values) if values else None

    def column_summary(self, row: str, column: Column) -> Summary | None:
        """Of a table's entry, not scaled."""
        return self.summary(row, column.measure, column.place)


def look_up(metrics: Mapping[str, Any], measure: str) -> float | None:
    """The number at a dotted path; None where there is none.

    Args:
        metrics: nested dictionaries.
        measure: such as "map_at_1000.image_to_text".
    """
    value: Any = metrics
    for key in measure.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return float(value) if isinstance(value, int | float) else None
