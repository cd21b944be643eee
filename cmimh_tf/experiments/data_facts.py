"""What an experiment must know of a data set before its cells can be listed."""

from dataclasses import dataclass
from pathlib import Path

from cmimh_tf.command_line import load_data
from cmimh_tf.data.splits import make_splits
from cmimh_tf.experiments.cell import SplitSetting


@dataclass(frozen=True)
class DataFacts:
    """A data set, without its arrays.

    Attributes:
        name: what `--data` got.
        fingerprint: changes when a value of the data changes.
        num_pairs: number of pairs.
        num_official_queries: size of the official query set; None where the data marks none.
        num_official_train: size of the official training set; None where the data marks none.
        has_labels: whether mAP can be measured.
        num_bytes: of the features in memory.
    """

    name: str
    fingerprint: str
    num_pairs: int
    num_official_queries: int | None = None
    num_official_train: int | None = None
    has_labels: bool = True
    num_bytes: int = 0

    @property
    def title(self) -> str:
        """The name without folder and ending: "coco18k"."""
        return Path(self.name).stem

    def query_count(self, split: SplitSetting) -> int:
        """How many queries a split has, the official ones included."""
        return split.num_queries if split.num_queries is not None else self.num_official_queries or 0

    def split(
        self, num_queries: int | None = None, num_train: int | None = None, num_validation: int = 0
    ) -> SplitSetting:
        """Sizes that hold for every seed; what is left out is as in `python -m cmimh_tf.train`.

        Args:
            num_queries: size of the query set; an official split of the data goes before it.
            num_train: size of the training set; more than there are means all, or all of an official one.
            num_validation: pairs kept out of both training set and database.

        Raises:
            ValueError: if the parts ask for more pairs than there are.
        """
        if self.num_official_queries is not None:
            num_queries, database = None, self.num_pairs - self.num_official_queries
        else:
            num_queries = len(make_splits(self.num_pairs, 0, num_queries=num_queries).query)
            database = self.num_pairs - num_queries
        available = database - num_validation
        if available < 2:
            raise ValueError(
                "`num_queries` and `num_validation` must leave pairs to train on. Received: "
                f"num_queries={num_queries}, num_validation={num_validation} of {self.num_pairs} pairs."
            )
        # One item more than the queries and the database: make_splits knows the usual size of a training set.
        usual = len(make_splits(available + 1, 0, num_queries=1).train)
        if self.num_official_train is not None:
            usual = available = min(available, self.num_official_train)
        return SplitSetting(num_queries, min(usual if num_train is None else num_train, available), num_validation)


def inspect_data(name: str) -> DataFacts:
    """Reads a data set once.

    Args:
        name: what `--data` got: a file of pairs, or a built-in data set.
    """
    data = load_data(name, 0)
    return DataFacts(
        name=name,
        fingerprint=data.fingerprint(),
        num_pairs=len(data),
        num_official_queries=int(data.is_query.sum()) if data.is_query is not None else None,
        num_official_train=int(data.is_train.sum()) if data.is_train is not None else None,
        has_labels=data.labels is not None,
        num_bytes=data.image.nbytes + data.text.nbytes,
    )
