"""What a user chooses about an experiment."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cmimh_tf.baselines.registry import BASELINES
from cmimh_tf.config import CMIMHConfig, get_preset
from cmimh_tf.experiments.cell import Cell, SplitSetting
from cmimh_tf.experiments.data_facts import DataFacts
from cmimh_tf.experiments.methods import CMIMH_METHOD, REAL_VALUED_CCA
from cmimh_tf.ops.hamming import check_code_length
from cmimh_tf.overrides import override

_QUICK_TRAIN, _QUICK_QUERIES, _QUICK_EPOCHS, _QUICK_UNITS = 1000, 500, 10, 256


@dataclass(frozen=True)
class Options:
    """The choices, resolved.

    Attributes:
        data: what is measured on.
        base: configuration of CMIMH that variants start from; its code length and seed are replaced.
        bits: code lengths; None takes the experiment's own.
        seeds: number of seeds, counted from 0; None is 3, or 1 of a quick version.
        methods: which methods a comparison shows; None takes all.
        num_queries: size of the query set; None takes the experiment's own.
        num_train: size of the training set; None takes the experiment's own.
        quick: a smaller version: one seed and two code lengths unless chosen, at most 1,000 training pairs, 500
            queries, 10 epochs, and hidden layers of 256.
    """

    data: DataFacts
    base: CMIMHConfig = dataclasses.field(default_factory=lambda: get_preset("default"))
    bits: Sequence[int] | None = None
    seeds: int | None = None
    methods: Sequence[str] | None = None
    num_queries: int | None = None
    num_train: int | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"`seeds` must be at least 1. Received: seeds={self.seeds}.")
        for name, size in (("num_queries", self.num_queries), ("num_train", self.num_train)):
            if size is not None and size < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={size}.")
        for length in self.bits or ():
            check_code_length(length)
        unknown = [name for name in self.methods or () if name not in all_methods()]
        if unknown:
            raise ValueError(f"`methods` must be among {', '.join(all_methods())}. Received: {unknown[0]!r}.")

    def code_lengths(self, usual: Sequence[int]) -> list[int]:
        """The bits to measure, `usual` unless the user chose."""
        if self.bits is not None:
            return list(dict.fromkeys(self.bits))
        return list(usual)[:2] if self.quick else list(usual)

    def seed_range(self) -> range:
        """The seeds to measure."""
        return range(self.seeds or (1 if self.quick else 3))

    def chosen_methods(self) -> list[str]:
        """The methods of a comparison, CMIMH last as in the paper."""
        return [name for name in all_methods() if self.methods is None or name in self.methods]

    def split(
        self, num_queries: int | None = None, num_train: int | None = None, num_validation: int = 0
    ) -> SplitSetting:
        """The sizes of the parts: those given unless the user chose others."""
        num_queries = num_queries if self.num_queries is None else self.num_queries
        num_train = num_train if self.num_train is None else self.num_train
        split = self.data.split(num_queries, num_train, num_validation)
        if not self.quick:
            return split
        if split.num_queries is not None:
            num_queries = min(split.num_queries, _QUICK_QUERIES)
        return self.data.split(num_queries, min(split.num_train, _QUICK_TRAIN), min(num_validation, _QUICK_QUERIES))

    def baseline_cell(self, method: str, bits: int, seed: int, split: SplitSetting) -> Cell:
        """A cell of a method other than CMIMH."""
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
            method: what is done with the configuration.
        """
        values: dict[str, Any] = {**(changes or {}), "code_length": bits, "seed": seed}
        if self.quick:
            values["training.epochs"] = min(self.base.training.epochs, _QUICK_EPOCHS)
            values["network.hidden_units"] = tuple(min(width, _QUICK_UNITS) for width in self.base.network.hidden_units)
        return Cell(method, bits, seed, split, override(self.base, values))


def all_methods() -> list[str]:
    """Every method of a comparison, in the order of the tables."""
    return [*BASELINES, REAL_VALUED_CCA, CMIMH_METHOD]
