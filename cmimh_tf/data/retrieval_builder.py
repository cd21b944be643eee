"""What the TFDS builders have in common: settings of the paper's tables, splits by seed, and how pairs are read.

Pairs are read one after the other, or by Beam where `DownloadConfig` has options or a runner for it. That is not the
default: TFDS sorts what Beam reads by a GroupByKey, which Beam's own runner for one machine holds in memory.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

from cmimh_tf.data.official_files import OfficialPairs
from cmimh_tf.data.progress import with_progress
from cmimh_tf.data.splits import make_splits

# The protocol asks for at least three splits.
_SEEDS = (0, 1, 2)
# TFDS's keys have 128 bits.
_KEYS = 2**128


@dataclasses.dataclass(eq=False)
class RetrievalConfig(tfds.core.BuilderConfig):
    """One setting of the paper.

    Attributes:
        num_queries: size of the query set, or None for `query_share`, or for an official query set.
        query_share: of all pairs, rounded to the next whole number.
        num_validation: pairs that are neither query nor database.
        num_train: the first so many of the database; None trains on all of it.
        seed: of the permutation, by the rule of `make_splits`.
        counts: what the official files must hold; None for the official counts.
    """

    num_queries: int | None = None
    query_share: float | None = None
    num_validation: int = 0
    num_train: int | None = None
    seed: int = 0
    counts: Any = None


def make_configs(settings: Iterable[RetrievalConfig]) -> list[RetrievalConfig]:
    """Each setting with seed 0 under its own name, and with the seeds 1 and 2 as `<name>_seed1`, `<name>_seed2`."""
    configs = []
    for setting in settings:
        for seed in _SEEDS:
            config = copy.copy(setting)
            config.seed = seed
            if seed:
                config.name = f"{setting.name}_seed{seed}"
            configs.append(config)
    return configs


def split_rows(config: RetrievalConfig, num_pairs: int, is_query: np.ndarray | None) -> dict[str, np.ndarray]:
    """Row numbers of train, database, query and, if the setting has one, validation.

    The held-out pairs are the first of the permutation: queries, then validation. With an official query set both are
    taken from it. The database is the rest, and train the first `num_train` of the database.
    """
    num_queries = config.num_queries
    if config.query_share is not None:
        num_queries = round(config.query_share * num_pairs)
    if is_query is not None:
        splits = make_splits(num_pairs, config.seed, is_query=is_query, num_train=config.num_train)
        num_queries = num_queries or len(splits.query)
    else:
        assert num_queries is not None  # A setting without an official query set says how many.
        held_out = num_queries + config.num_validation
        splits = make_splits(num_pairs, config.seed, num_queries=held_out, num_train=config.num_train)
    rows = {
        "train": splits.train if config.num_train is not None else splits.database,
        "database": splits.database,
        "query": splits.query[:num_queries],
    }
    if config.num_validation:
        rows["validation"] = splits.query[num_queries : num_queries + config.num_validation]
    return rows


class RetrievalBuilder(tfds.core.GeneratorBasedBuilder):
    """Builds train, database and query (and validation) from official files that the user has downloaded."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "First release."}
    _on_beam = False

    @tfds.core.utils.classproperty
    @classmethod
    def code_path(cls) -> epath.Path:
        """Where the builder's own files are. TFDS's way to find out needs importlib_resources, which it declares for
        Python 3.8 only."""
        return epath.Path(inspect.getfile(cls))

    def read_pairs(self, folder: Path) -> OfficialPairs:
        """The pairs that the data set's rule keeps.

        Raises:
            FileNotFoundError: naming the file that is missing, with where to get it.
            DataError: naming the file and the line that is wrong.
        """
        raise NotImplementedError

    def _download_and_prepare(
        self, dl_manager: tfds.download.DownloadManager, download_config: tfds.download.DownloadConfig | None = None
    ) -> None:
        self._on_beam = bool(download_config and (download_config.beam_options or download_config.beam_runner))
        super()._download_and_prepare(dl_manager, download_config)

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        try:
            folder = Path(dl_manager.manual_dir)
        except AssertionError as error:
            # What TFDS raises for a folder that is missing or empty; its message has the instructions.
            raise FileNotFoundError(str(error)) from error
        pairs = self.read_pairs(folder)
        rows_of = split_rows(self.builder_config, len(pairs.ids), pairs.is_query)
        return {name: self._generate_examples(pairs, rows, name) for name, rows in rows_of.items()}

    def _generate_examples(self, pairs: OfficialPairs, rows: np.ndarray, split: str) -> Any:
        """(key, example) of each row, as an iterator or as a PTransform; both ways write the same shards."""
        all_ids = pairs.ids
        # Beam's integers have 64 bits, and TFDS divides what it read by the largest key.
        keys = range(len(rows)) if self._on_beam else ordered_keys(len(rows))
        items = [(key, row, all_ids[row]) for key, row in zip(keys, rows.tolist(), strict=True)]
        if not self._on_beam:
            return (_example(items[number], pairs) for number in with_progress(len(items), f"pairs of {split} read"))
        beam = tfds.core.lazy_imports.apache_beam
        return beam.Create(items) | beam.Map(_example, pairs)


def ordered_keys(count: int) -> Iterable[int]:
    """Keys by which TFDS keeps the order of a split.

    TFDS sorts by them in buckets, each a part of 0..2**128: keys that are spread over all of it fill many small
    buckets, where numbers from 0 would fill one, which is read into memory as a whole.
    """
    return [position * (_KEYS // count) for position in range(count)]


def _example(key_row_and_id: tuple[int, int, str], pairs: OfficialPairs) -> tuple[int, dict[str, Any]]:
    key, row, item_id = key_row_and_id
    return key, {"id": item_id, **pairs.example(row)}
