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
        missing: seeds without a result, since they failed or were not run; they are in neither of the above.
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
    """What is known of an experiment; cells that failed or were not run are missing.

    Attributes:
        experiment: the experiment.
        by_cell: results of cells, as stored.
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

    def measured(self, row: str | None, place: Place) -> Iterator[Mapping[str, Any]]:
        """The results at `points`, where there are any."""
        return (self.by_cell[point.cell] for point in self.points(row, place) if point.cell in self.by_cell)

    def values(self, row: str | None, measure: str, place: Place) -> list[float]:
        """One value a seed; those that are undefined are left out."""
        found = (look_up(result["metrics"], measure) for result in self.measured(row, place))
        return [value for value in found if value is not None]

    def summary(self, row: str | None, measure: str, place: Place) -> Summary | None:
        """Over the seeds; None if there is no value."""
        values = self.values(row, measure, place)
        missing = sum(point.cell not in self.by_cell for point in self.points(row, place))
        return summarise(values, missing) if values else None

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
