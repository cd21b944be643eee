"""What an experiment consists of: cells to measure, and the tables, plots and claims that present their results."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cmimh_tf import __version__
from cmimh_tf.config import CMIMHConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cmimh_tf.experiments.results import Results

Place = Mapping[str, Any]


@dataclass(frozen=True)
class SplitSetting:
    """The sizes of the parts into which a data set is split by the cell's seed.

    Attributes:
        num_queries: size of the query set; None uses the official split that the data marks.
        num_train: size of the training set.
        num_validation: pairs that are neither trained on nor searched. They are the first of the database, or the last
            if the data marks an official training set.
        search_for: "queries", or "validation" to search for the validation pairs instead, so that nothing is learned
            about the queries.
    """

    num_queries: int | None
    num_train: int
    num_validation: int = 0
    search_for: str = "queries"


@dataclass(frozen=True)
class Cell:
    """One method, fitted once and measured once: everything that decides a result, besides the data.

    Attributes:
        method: a name that `cmimh_tf.experiments.measure.measure` supports.
        code_length: number of bits.
        seed: of the split, the method and the tie order, as in `python -m cmimh_tf.train`.
        split: sizes of the parts.
        config: the resolved configuration if the method is CMIMH. Two variants that resolve to the same configuration
            are the same cell.
        rerank: "asymmetric" also measures the ranking by the logits of the queries, if the method is CMIMH.
    """

    method: str
    code_length: int
    seed: int
    split: SplitSetting
    config: CMIMHConfig | None = None
    rerank: str = "none"

    def __post_init__(self) -> None:
        if self.config is not None and (self.config.code_length, self.config.seed) != (self.code_length, self.seed):
            raise ValueError(
                "`config` must have the code length and the seed of its cell. Received: "
                f"config.code_length={self.config.code_length}, config.seed={self.config.seed} in {self.title}."
            )

    @property
    def title(self) -> str:
        """For messages: "CMIMH, 32 bits, seed 0"."""
        return f"{self.method}, {self.code_length} bits, seed {self.seed}"

    def identity(self, data_fingerprint: str) -> dict[str, Any]:
        """Everything that the result depends on, JSON-ready."""
        return {
            "method": self.method,
            "code_length": self.code_length,
            "seed": self.seed,
            "split": {
                "queries": self.split.num_queries,
                "train": self.split.num_train,
                "validation": self.split.num_validation,
                **({} if self.split.search_for == "queries" else {"search_for": self.split.search_for}),
            },
            "config": self.config.to_dict() if self.config is not None else None,
            "data": data_fingerprint,
            "version": __version__,
            # Left out by default, so that results measured without it are found.
            **({} if self.rerank == "none" else {"rerank": self.rerank}),
        }

    def file_stem(self, data_fingerprint: str) -> str:
        """A readable and unique file name: "cmimh-32bit-seed0-1f3a9c02b7d4"."""
        text = json.dumps(self.identity(data_fingerprint), sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]
        method = re.sub(r"[^a-z0-9]+", "-", self.method.lower()).strip("-")
        return f"{method}-{self.code_length}bit-seed{self.seed}-{digest}"


@dataclass(frozen=True)
class Point:
    """A cell and its place in the experiment.

    Attributes:
        row: label of its table row, such as a method or a variant.
        place: further keys to find it by, such as {"bits": 32}.
        cell: what is measured.
        within: the key of its own metrics among those of the cell; "" for all. "asymmetric" is the same model ranked
            by logits.
    """

    row: str
    place: Place
    cell: Cell
    within: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        group: the heading above it, such as the task.
        title: its own heading, such as the number of bits.
        measure: dotted path into a cell's metrics, such as "map_at_1000.image_to_text".
        place: selects the points to show.
        scale: factor for display; 100 shows percent.
        digits: after the decimal point.
        best: "max" or "min" prints the best value of the column in bold; None prints none.
        paper_measure: name of the measure in the paper's figures, if it differs from `measure`.
    """

    group: str
    title: str
    measure: str
    place: Place
    scale: float = 100.0
    digits: int = 1
    best: str | None = "max"
    paper_measure: str | None = None

    @property
    def name(self) -> str:
        """For messages: "image to text, 32 bits"."""
        return f"{self.group}, {self.title}"


@dataclass(frozen=True)
class PaperTable:
    """The table of the paper that a table repeats.

    Attributes:
        name: of the table in paper_figures.json.
        reference: the row that the others are compared with to show the trend.
        settings: for each row the paper's name of the variant; empty if the rows are methods.
    """

    name: str
    reference: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table in the paper's layout.

    Attributes:
        title: what it shows, with the unit.
        corner: heading of the row labels.
        rows: labels in order.
        columns: the columns.
        references: rows that are shown but never bold, such as an upper bound.
        paper: the table of the paper that it repeats, or None.
    """

    title: str
    corner: str
    rows: Sequence[str]
    columns: Sequence[Column]
    references: Sequence[str] = ()
    paper: PaperTable | None = None


@dataclass(frozen=True)
class Claim:
    """A statement of the paper: each of the better rows exceeds each of the worse ones.

    Attributes:
        text: the statement, a full sentence.
        better: rows that are better.
        worse: rows that are worse.
        columns: where it must hold; less is better if `best` is "min".
        better_place: selects the points of the better rows, in addition to the place of the column.
        worse_place: likewise of the worse rows.
        slack: how far the better rows may fall behind, for a statement such as "hardly worse".
        published: what the paper reports for it. Claims that have it are shown as a table.
        subject: what the statement is about, if the same one is checked for several things, such as several readings
            of the paper. Each subject has a table of its own.
        short: heading of the table that counts for each subject which claims hold. Claims with equal headings count
            as one.
    """

    text: str
    better: Sequence[str]
    worse: Sequence[str]
    columns: Sequence[Column]
    better_place: Place = field(default_factory=dict)
    worse_place: Place = field(default_factory=dict)
    slack: float = 0.0
    published: str = ""
    subject: str = ""
    short: str = ""


@dataclass(frozen=True)
class Plot:
    """A figure.

    Attributes:
        name: of its file, without suffix.
        alt: a sentence that describes it.
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
        about: the part of the paper that it repeats, and how the cells are set up.
        points: what is measured.
        tables: how the results are shown.
        plots: likewise.
        contender: the row that is compared with all others for the verdict, or None.
        headline: the columns of that comparison.
        claims: the paper's statements that these cells can confirm or refute.
        next_stage: makes the experiment that follows from the results of this one, with the points of both; None if
            there is none.
        detailed: the subjects whose claims are shown in full; None shows all. The others are only counted.
    """

    name: str
    title: str
    about: str
    points: Sequence[Point]
    tables: Sequence[Table]
    plots: Sequence[Plot] = ()
    contender: str | None = None
    headline: Sequence[Column] = ()
    claims: Sequence[Claim] = ()
    next_stage: "Callable[[Results], Experiment] | None" = None
    detailed: Sequence[str] | None = None

    @property
    def names(self) -> dict[Cell, str]:
        """A name for each cell: its title, and its row and reading unless they say nothing more than the title."""
        names: dict[Cell, str] = {}
        for point in self.points:
            row = [point.row] if point.row != point.cell.method and not point.within else []
            reading = [point.place["reading"]] if "reading" in point.place else []
            details = "; ".join([*row, *reading])
            names.setdefault(point.cell, f"{point.cell.title} ({details})" if details else point.cell.title)
        return names

    @property
    def needs_labels(self) -> bool:
        """Whether a table shows mAP or precision."""
        return any(column.measure.startswith(("map", "precision")) for t in self.tables for column in t.columns)

    @property
    def cells(self) -> list[Cell]:
        """All cells, without duplicates."""
        return list(dict.fromkeys(point.cell for point in self.points))
