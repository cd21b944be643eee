"""The inputs of an experiment: facts about the data set, and the user's choices."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.baselines.registry import BASELINES
from cmimh_tf.codes import check_code_length
from cmimh_tf.command_line import load_data
from cmimh_tf.config import CMIMHConfig, get_preset
from cmimh_tf.data.splits import make_splits
from cmimh_tf.experiments.experiment import Cell, SplitSetting
from cmimh_tf.overrides import override

CMIMH_METHOD = "CMIMH"
STEP_TIME_METHOD = "CMIMH step time"
REAL_VALUED_CCA = "CCA, real-valued"
ASYMMETRIC_CMIMH = "CMIMH, asymmetric"
_QUICK_TRAIN, _QUICK_QUERIES, _QUICK_EPOCHS, _QUICK_UNITS = 1000, 500, 10, 256


@dataclass(frozen=True)
class DataFacts:
    """A data set without its arrays.

    Attributes:
        name: the value of `--data`.
        fingerprint: changes when a value of the data changes.
        num_pairs: number of pairs.
        num_official_queries: size of the official query set; None if the data marks none.
        num_official_train: size of the official training set; None if the data marks none.
        has_labels: whether mAP can be measured.
        num_bytes: size of the features in memory.
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
        """The name without folder and suffix: "coco18k"."""
        return Path(self.name).stem

    def query_count(self, split: SplitSetting) -> int:
        """The number of queries of a split, official or not."""
        return split.num_queries if split.num_queries is not None else self.num_official_queries or 0

    def split(
        self, num_queries: int | None = None, num_train: int | None = None, num_validation: int = 0
    ) -> SplitSetting:
        """Sizes that are valid for every seed. None uses the size of `cmimh train --protocol paper`.

        Args:
            num_queries: size of the query set; ignored if the data marks an official query set.
            num_train: size of the training set, limited to the pairs that are available.
            num_validation: pairs kept out of both training set and database.

        Raises:
            ValueError: if the parts need more pairs than there are.
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
        # The paper's size of a training set, here for a database of `available` items.
        usual = len(make_splits(available + 1, 0, num_queries=1, protocol="paper").train)
        if self.num_official_train is not None:
            usual = available = min(available, self.num_official_train)
        return SplitSetting(num_queries, min(usual if num_train is None else num_train, available), num_validation)


def inspect_data(name: str) -> DataFacts:
    """Reads a data set once.

    Args:
        name: the value of `--data`: a file of pairs, or a built-in data set.
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


@dataclass(frozen=True)
class Options:
    """The user's choices, resolved.

    Attributes:
        data: the data set.
        base: configuration of CMIMH that variants start from; its code length and seed are replaced.
        bits: code lengths; None uses those of the experiment.
        seeds: number of seeds; None means 3, or 1 if `quick`.
        methods: the methods of a comparison; None uses all.
        num_queries: size of the query set; None uses that of the experiment.
        num_train: size of the training set; None uses that of the experiment.
        quick: a small version: at most 1,000 training pairs, 500 queries, 10 epochs and hidden layers of 256, and one
            seed and two code lengths unless they are given.
        rerank: "asymmetric" adds a row to comparisons: CMIMH ranked by the logits of the queries. No other method gives
            logits.
        first_seed: the first of the seeds.
    """

    data: DataFacts
    base: CMIMHConfig = dataclasses.field(default_factory=lambda: get_preset("default"))
    bits: Sequence[int] | None = None
    seeds: int | None = None
    methods: Sequence[str] | None = None
    num_queries: int | None = None
    num_train: int | None = None
    quick: bool = False
    rerank: str = "none"
    first_seed: int = 0

    def __post_init__(self) -> None:
        check_choices(self.bits, self.seeds, self.methods, self.num_queries, self.num_train)
        if self.first_seed < 0:
            raise ValueError(f"`first_seed` must be at least 0. Received: {self.first_seed}.")

    def code_lengths(self, usual: Sequence[int]) -> list[int]:
        """The code lengths to measure: the user's, or `usual`."""
        if self.bits is not None:
            return list(dict.fromkeys(self.bits))
        return list(usual)[:2] if self.quick else list(usual)

    def seed_range(self) -> range:
        """The seeds to measure."""
        return range(self.first_seed, self.first_seed + (self.seeds or (1 if self.quick else 3)))

    def chosen_methods(self) -> list[str]:
        """The methods of a comparison, CMIMH last as in the paper."""
        return [name for name in all_methods() if self.methods is None or name in self.methods]

    def split(
        self, num_queries: int | None = None, num_train: int | None = None, num_validation: int = 0
    ) -> SplitSetting:
        """The sizes of the parts: the user's, or those given here."""
        num_queries = num_queries if self.num_queries is None else self.num_queries
        num_train = num_train if self.num_train is None else self.num_train
        split = self.data.split(num_queries, num_train, num_validation)
        if not self.quick:
            return split
        if split.num_queries is not None:
            num_queries = min(split.num_queries, _QUICK_QUERIES)
        return self.data.split(num_queries, min(split.num_train, _QUICK_TRAIN), min(num_validation, _QUICK_QUERIES))

    def cell(self, method: str, bits: int, seed: int, split: SplitSetting) -> Cell:
        """The cell of a method in a comparison."""
        if method == CMIMH_METHOD:
            return dataclasses.replace(self.cmimh_cell(bits, seed, split), rerank=self.rerank)
        return Cell(method, bits, seed, split)

    def cmimh_cell(
        self,
        bits: int,
        seed: int,
        split: SplitSetting,
        changes: Mapping[str, Any] | None = None,
        method: str = CMIMH_METHOD,
    ) -> Cell:
        """A cell of CMIMH.

        Args:
            bits: code length.
            seed: of everything.
            split: sizes of the parts.
            changes: dotted keys of the configuration to change.
            method: `CMIMH_METHOD` to train, `STEP_TIME_METHOD` to time a step.
        """
        values: dict[str, Any] = {**(changes or {}), "code_length": bits, "seed": seed}
        if self.quick:
            values["training.epochs"] = min(self.base.training.num_epochs(split.num_train), _QUICK_EPOCHS)
            for key in ("hidden_units", "decoder_units"):
                if (widths := getattr(self.base.network, key)) is not None:
                    values[f"network.{key}"] = tuple(min(width, _QUICK_UNITS) for width in widths)
        return Cell(method, bits, seed, split, override(self.base, values))


def check_choices(
    bits: Sequence[int] | None,
    seeds: int | None,
    methods: Sequence[str] | None,
    num_queries: int | None,
    num_train: int | None,
) -> None:
    """Raises a ValueError if a choice of `Options` is wrong. It needs no data, so that flags can be checked first."""
    for name, count in (("seeds", seeds), ("num_queries", num_queries), ("num_train", num_train)):
        if count is not None and count < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={count}.")
    for length in bits or ():
        check_code_length(length)
    unknown = [name for name in methods or () if name not in all_methods()]
    if unknown:
        raise ValueError(f"`methods` must be among {', '.join(all_methods())}. Received: {unknown[0]!r}.")


def all_methods() -> list[str]:
    """Every method of a comparison, in the order of the tables."""
    return [*BASELINES, REAL_VALUED_CCA, CMIMH_METHOD]
