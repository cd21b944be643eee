"""What an experiment is: cells with their places in tables, and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cmimh_tf.experiments.cell import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cmimh_tf.experiments.results import Results

Place = Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """A cell and its place in the experiment.

    Attributes:
        row: label of its table row, such as a method or a variant.
        place: what else it is looked up by, such as {"bits": 32}.
        cell: what is measured.
    """

    row: str
    place: Place
    cell: Cell


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        group: the heading above it, such as the task.
        title: its own heading, such as the number of bits.
        measure: dotted path into a cell's metrics, such as "map_at_1000.image_to_text".
        place: which points it shows.
        scale: what values are multiplied with; 100 shows percent.
        digits: after the decimal point.
        best: "max" or "min" sets the best of the column in bold; None none.
    """

    group: str
    title: str
    measure: str
    place: Place
    scale: float = 100.0
    digits: int = 1
    best: str | None = "max"


@dataclass(frozen=True)
class Table:
    """A table in the paper's layout.

    Attributes:
        title: what it shows, with the unit.
        corner: heading of the row labels.
        rows: labels in order.
        columns: the columns.
        references: rows that are shown but never bold, such as an upper bound.
        published: key of the published figures that belong under it, or None.
    """

    title: str
    corner: str
    rows: Sequence[str]
    columns: Sequence[Column]
    references: Sequence[str] = ()
    published: str | None = None


@dataclass(frozen=True)
class Picture:
    """A figure.

    Attributes:
        name: of its file, without ending.
        alt: what it shows, in a sentence.
        draw: makes it from the results.
    """

    name: str
    alt: str
    draw: "Callable[[Results], Figure]"


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Attributes:
        name: as on the command line.
        title: one line.
        about: what of the paper it repeats, and how the cells are set.
        points: what is measured.
        tables: how it is shown.
        pictures: likewise.
        contender: the row whose standing against all other rows is told, or None.
        headline: the columns on which that is judged.
    """

    name: str
    title: str
    about: str
    points: Sequence[Point]
    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    contender: str | None = None
    headline: Sequence[Column] = field(default_factory=tuple)

    @property
    def names(self) -> dict[Cell, str]:
        """Each cell as the screen calls it, with its row where that says more than the method."""
        names: dict[Cell, str] = {}
        for point in self.points:
            row = f" ({point.row})" if point.row != point.cell.method else ""
            names.setdefault(point.cell, f"{point.cell.title}{row}")
        return names

    @property
    def needs_labels(self) -> bool:
        """Whether something in its tables is mAP."""
        return any(column.measure.startswith("map") for table in self.tables for column in table.columns)

    @property
    def cells(self) -> list[Cell]:
        """All cells, each once."""
        return list(dict.fromkeys(point.cell for point in self.points))
