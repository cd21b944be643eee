"""Which published figures belong beside ours."""

from cmimh_tf.experiments.experiment import Column
from cmimh_tf.experiments.published_figures import PUBLISHED_ROWS, PublishedRow

DATA_SETS = ("mirflickr25k", "nuswide", "mscoco")


def published_rows(data_title: str, setting: str | None) -> list[PublishedRow]:
    """What was published for a data set under the setting of a table.

    Args:
        data_title: the data file's name without ending, such as "nuswide_features".
        setting: the name of the setting, or None.
    """
    data_set = data_set_of(data_title)
    return [row for row in PUBLISHED_ROWS if row.data_set == data_set and row.setting == setting]


def data_set_of(data_title: str) -> str | None:
    """The data set of the paper that a file is named after, or None.

    coco18k is none of them: other pairs, other features.
    """
    plain = data_title.lower().replace("-", "").replace("_", "")
    return next((name for name in DATA_SETS if plain.startswith(name)), None)


def published_label(row: PublishedRow) -> str:
    """For a table: nobody should take it for a measurement of ours."""
    return f"{row.method} (cited)"


def published_figure(row: PublishedRow, column: Column) -> float | None:
    """The figure, in percent, that belongs into a column; None if there is none."""
    measure, _, task = column.measure.rpartition(".")
    bits = column.place.get("bits")
    if measure != row.measure or not isinstance(bits, int):
        return None
    return row.figures.get(task, {}).get(bits)
