"""A cell: one method, fitted once and measured once."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from cmimh_tf import __version__
from cmimh_tf.config import CMIMHConfig


@dataclass(frozen=True)
class SplitSetting:
    """The sizes of the parts into which a data set is split by the cell's seed.

    Attributes:
        num_queries: size of the query set; None takes the official split that the data marks.
        num_train: size of the training set.
        num_validation: pairs that are neither trained on nor searched, taken from the head of the database, or from
            its end where the data marks an official training set.
    """

    num_queries: int | None
    num_train: int
    num_validation: int = 0


@dataclass(frozen=True)
class Cell:
    """All that decides a result, besides the data.

    Attributes:
        method: a name that `cmimh_tf.experiments.methods.measure` knows.
        code_length: number of bits.
        seed: of the split, the method and the tie order, as in `python -m cmimh_tf.train`.
        split: sizes of the parts.
        config: the resolved configuration where the method is CMIMH; two variants that resolve to the same
            configuration are the same cell.
    """

    method: str
    code_length: int
    seed: int
    split: SplitSetting
    config: CMIMHConfig | None = None

    def __post_init__(self) -> None:
        if self.config is not None and (self.config.code_length, self.config.seed) != (self.code_length, self.seed):
            raise ValueError(
                "`config` must have the code length and the seed of its cell. Received: "
                f"config.code_length={self.config.code_length}, config.seed={self.config.seed} in {self.title}."
            )

    @property
    def title(self) -> str:
        """For the screen: "CMIMH, 32 bits, seed 0"."""
        return f"{self.method}, {self.code_length} bits, seed {self.seed}"

    def identity(self, data_fingerprint: str) -> dict[str, Any]:
        """What the result depends on, JSON-ready.

        Args:
            data_fingerprint: of the data that is measured on.
        """
        return {
            "method": self.method,
            "code_length": self.code_length,
            "seed": self.seed,
            "split": {
                "queries": self.split.num_queries,
                "train": self.split.num_train,
                "validation": self.split.num_validation,
            },
            "config": self.config.to_dict() if self.config is not None else None,
            "data": data_fingerprint,
            "version": __version__,
        }

    def file_stem(self, data_fingerprint: str) -> str:
        """A readable name that no other cell has: "cmimh-32bit-seed0-1f3a9c02b7d4"."""
        text = json.dumps(self.identity(data_fingerprint), sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]
        method = re.sub(r"[^a-z0-9]+", "-", self.method.lower()).strip("-")
        return f"{method}-{self.code_length}bit-seed{self.seed}-{digest}"
