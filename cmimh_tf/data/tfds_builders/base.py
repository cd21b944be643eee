"""What the TFDS builders share: official files and how they are checked, settings of the paper, and splits by seed.

Pairs are read one after the other, or by Beam if `DownloadConfig` has Beam options or a runner. Beam is not the
default: TFDS sorts the pairs that Beam reads by a GroupByKey, which Beam's DirectRunner keeps in memory.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.splits import make_splits
from cmimh_tf.progress import track

# The protocol asks for at least three splits.
_SEEDS = (0, 1, 2)
# TFDS's keys have 128 bits.
_KEYS = 2**128
# Some cameras append a few bytes after the end of a picture.
_TAIL_BYTES = 1 << 16
_END_MARKS = {b"\xff\xd8": b"\xff\xd9", b"\x89PNG": b"IEND", b"GIF8": b";", b"BM": b""}


class OfficialPairs(Protocol):
    """The pairs of a data set that are kept, in the order of the official files."""

    @property
    def ids(self) -> list[str]:
        """One unique id per pair."""

    @property
    def is_query(self) -> np.ndarray | None:
        """bool [N], marks an official query set, or None."""

    def example(self, row: int) -> dict[str, Any]:
        """One pair as the features of the TFDS data set."""


@dataclass(frozen=True)
class OfficialFolder:
    """The folder with the unpacked downloads.

    Args:
        path: the folder.
        source: where to download the files, for error messages.
    """

    path: Path
    source: str

    def file(self, name: str) -> Path:
        """The path of a file that must exist.

        Raises:
            FileNotFoundError: naming the file and its source.
        """
        path = self.path / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist. {self.source}")
        return path

    def lines(self, name: str, expected: int | None = None) -> Iterator[tuple[str, str]]:
        """Yields (location, line) for each line of a text file in UTF-8, without the line end.

        Raises:
            FileNotFoundError: if there is no such file.
            DataError: if the file is not UTF-8, or the number of lines is not the expected one.
        """
        path = self.file(name)
        number = 0
        try:
            with path.open(encoding="utf-8-sig") as file:
                for number, line in enumerate(file, 1):
                    if expected is not None and number > expected:
                        raise self.wrong(path, f"must have {expected:,} lines", "more")
                    yield f"{path}, line {number}", line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, line {number + 1}: must be UTF-8. Received: {error}. {self.source}") from error
        if expected is not None and number != expected:
            raise self.wrong(path, f"must have {expected:,} lines", f"{number:,}")

    def wrong(self, place: Any, rule: str, received: Any) -> DataError:
        """An error with a rule, the value that broke it, and the source of the file."""
        return DataError(f"{place}: {rule}. Received: {received}. {self.source}")

    def picture(self, name: str) -> bytes:
        """The bytes of a picture.

        Some files named .jpg are PNG or GIF. TensorFlow decodes pictures by their content.

        Raises:
            FileNotFoundError: if there is no such file.
            DataError: if it is not a picture, or is truncated.
        """
        path = self.file(name)
        picture = path.read_bytes()
        for start, end in _END_MARKS.items():
            if picture.startswith(start):
                if end in picture[-_TAIL_BYTES:]:
                    return picture
                raise self.wrong(path, "must be a whole picture", f"{len(picture):,} bytes without an end mark")
        raise self.wrong(path, "must be a picture", f"{len(picture):,} bytes that begin with {picture[:8]!r}")


def check_count(found: int, expected: int | None, folder: OfficialFolder, what: str) -> None:
    """Checks that the number of kept pairs is that of the paper. Another number means another version of some file.

    Raises:
        DataError: with both numbers.
    """
    if expected is not None and found != expected:
        raise folder.wrong(folder.path, f"{what} must be {expected:,}", f"{found:,}")


@dataclasses.dataclass(eq=False)
class RetrievalConfig(tfds.core.BuilderConfig):
    """One setting of the paper.

    Attributes:
        num_queries: size of the query set. None: use `query_share`, or an official query set.
        query_share: size of the query set as a share of all pairs, rounded to the nearest integer.
        num_validation: number of pairs that are in neither query set nor database.
        num_train: the first N pairs of the database are the training set; None for all of them.
        seed: seed of the permutation in `make_splits`.
        counts: expected sizes of the official files; None for the official counts.
    """

    num_queries: int | None = None
    query_share: float | None = None
    num_validation: int = 0
    num_train: int | None = None
    seed: int = 0
    counts: Any = None


def make_configs(settings: Iterable[RetrievalConfig]) -> list[RetrievalConfig]:
    """Each setting with seed 0 under its own name, and with seeds 1 and 2 as `<name>_seed1` and `<name>_seed2`."""
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

    The first pairs of the permutation are held out: queries, then validation. Both come from the official query set if
    there is one. The database is the rest, and the training set is the first `num_train` pairs of the database.
    """
    num_queries = config.num_queries
    if config.query_share is not None:
        num_queries = round(config.query_share * num_pairs)
    if is_query is not None:
        splits = make_splits(num_pairs, config.seed, is_query=is_query, num_train=config.num_train)
        num_queries = num_queries or len(splits.query)
    else:
        assert num_queries is not None  # Every setting without an official query set has a number.
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
    """Builds train, database and query (and validation) from downloaded official files."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "First release."}
    _on_beam = False

    @tfds.core.utils.classproperty
    @classmethod
    def code_path(cls) -> epath.Path:
        """The builder's file. TFDS's own implementation needs importlib_resources, which it declares for Python 3.8
        only."""
        return epath.Path(inspect.getfile(cls))

    def read_pairs(self, folder: Path) -> OfficialPairs:
        """Reads the official files and selects the pairs to keep.

        Raises:
            FileNotFoundError: naming the missing file and its source.
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
            # TFDS raises this if the folder is missing or empty; the message contains the instructions.
            raise FileNotFoundError(str(error)) from error
        pairs = self.read_pairs(folder)
        rows_of = split_rows(self.builder_config, len(pairs.ids), pairs.is_query)
        return {name: self._generate_examples(pairs, rows, name) for name, rows in rows_of.items()}

    def _generate_examples(self, pairs: OfficialPairs, rows: np.ndarray, split: str) -> Any:
        """(key, example) of each row, as an iterator or as a PTransform; both write the same shards."""
        all_ids = pairs.ids
        # Beam's integers have 64 bits, and TFDS divides by the largest key it has read.
        keys = range(len(rows)) if self._on_beam else ordered_keys(len(rows))
        items = [(key, row, all_ids[row]) for key, row in zip(keys, rows.tolist(), strict=True)]
        if not self._on_beam:
            return (_example(item, pairs) for item in track(items, len(items), f"reading {split}", "pairs"))
        beam = tfds.core.lazy_imports.apache_beam
        return beam.Create(items) | beam.Map(_example, pairs)


def ordered_keys(count: int) -> Iterable[int]:
    """Keys that keep the order of a split in TFDS.

    TFDS sorts by key in buckets that divide the range 0..2**128 and reads one bucket at a time into memory. Evenly
    spaced keys fill many small buckets; the numbers from 0 on would all be in one.
    """
    return [position * (_KEYS // count) for position in range(count)]


def _example(key_row_and_id: tuple[int, int, str], pairs: OfficialPairs) -> tuple[int, dict[str, Any]]:
    key, row, item_id = key_row_and_id
    return key, {"id": item_id, **pairs.example(row)}
