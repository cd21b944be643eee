"""A TFDS data set that is prepared on this machine, by name or by folder.

Splits called train, database and query are used as they are. Otherwise the pairs of `test` (or of `validation`) are the
queries, and all other splits are the database. If a picture has several captions, as in coco_captions, one is chosen by
a fixed seed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.npz import similar_names
from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.pictures import check_picture
from cmimh_tf.data.readers.tfds_roles import Roles, caption_of, find_roles, labels_of
from cmimh_tf.data.records import PairReader, PairRecord, RecordIndex, check_vector
from cmimh_tf.data.splits import SPLIT_NAMES, repeated_ids, splits_from_groups
from cmimh_tf.files import files_fingerprint

OWN_BUILDERS = ("mirflickr25k", "nuswide", "mscoco")
_QUERY_SPLITS = ("test", "validation", "val")


@dataclass(frozen=True)
class TfdsReader(PairReader):
    """The folder of a prepared data set, which contains dataset_info.json. Each shard is a block."""

    folder: str

    @classmethod
    def open(cls, name: str, data_dir: str | None = None) -> TfdsReader:
        """A data set by its TFDS name, such as `coco_captions` or `mirflickr25k/recall_one`.

        The data sets of this project are prepared on first use if their files are in TFDS's folder for manual
        downloads. All others must have been prepared before: nothing is downloaded.

        Args:
            name: name of the data set, with its setting after a slash.
            data_dir: folder of TFDS. Default: $TFDS_DATA_DIR, or ~/tensorflow_datasets.

        Raises:
            FileNotFoundError: if official files are missing; the message names their source.
            ValueError: if the name is unknown, or the data are not prepared.
        """
        builder = make_builder(name, data_dir=data_dir)
        if not builder.is_prepared():
            if builder.name not in OWN_BUILDERS:
                raise ValueError(
                    f"`tfds:{name}` must be prepared. Received: nothing in {builder.data_dir}. Prepare it, which may "
                    f"download, with: python -m cmimh_tf.data prepare tfds:{name}"
                )
            # TFDS prints its progress to standard output, which is for the results of a command.
            with contextlib.redirect_stdout(sys.stderr):
                builder.download_and_prepare()
        return cls(str(builder.data_dir))

    @property
    def name(self) -> str:
        info = _builder(self.folder).info
        config = f"-{info.config_name}" if info.config_name else ""
        return f"{info.name}{config}"

    def fingerprint(self) -> str:
        files = sorted(path for path in Path(self.folder).iterdir() if path.is_file())
        small = [path for path in files if path.suffix == ".json"]
        return files_fingerprint(small, {path.name: path for path in files})

    def survey(self) -> RecordIndex:
        return _survey(self.folder)

    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        index = self.survey()
        roles = _roles(self.folder)
        for row, (place, example) in enumerate(_examples(self.folder, start, stop), start):
            try:
                yield _record(example, roles, index.ids[row], place, row)
            except DataError as error:
                yield error


def make_builder(name: str, data_dir: str | None = None) -> Any:
    """The TFDS builder of a name, also for the data sets of this project.

    Raises:
        ImportError: if tensorflow_datasets is not installed.
        ValueError: if the name or the configuration is unknown.
    """
    if importlib.util.find_spec("tensorflow_datasets") is None:
        raise ImportError("TFDS data need tensorflow_datasets. Install with: pip install tensorflow-datasets")
    import tensorflow_datasets as tfds

    base, _, config = name.partition("/")
    if base in OWN_BUILDERS:
        builder = importlib.import_module(f"cmimh_tf.data.tfds_builders.{base}.{base}_dataset_builder").Builder
        if config and config not in builder.builder_configs:
            known = ", ".join(builder.builder_configs)
            raise ValueError(f"`{base}` must come with one of the settings {known}. Received: {config!r}.")
        return builder(config=config or None, data_dir=data_dir)
    try:
        return tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError as error:
        # TFDS's own message lists its whole catalogue.
        similar = similar_names(base, [*OWN_BUILDERS, *tfds.list_builders()])
        raise ValueError(
            f"`tfds:{name}` must name a TFDS data set. Received: {base!r}.{similar} All names: "
            "https://www.tensorflow.org/datasets/catalog"
        ) from error
    except (ValueError, AssertionError) as error:  # TFDS asserts that a version exists.
        (reason, *_) = str(error).splitlines()
        raise ValueError(f"`tfds:{name}` must name a TFDS data set. Received: {reason}") from error


@functools.lru_cache(maxsize=4)
def _builder(folder: str) -> Any:
    import tensorflow_datasets as tfds

    return tfds.builder_from_directory(folder)


@functools.lru_cache(maxsize=4)
def _roles(folder: str) -> Roles:
    return find_roles(_builder(folder).info.features, folder)


def _split_names(folder: str) -> list[str]:
    splits = _builder(folder).info.splits
    official = [name for name in SPLIT_NAMES if name in splits]
    return official if {"database", "query"} <= set(official) else sorted(splits)


def _blocks(folder: str) -> list[tuple[str, int, int]]:
    """(split, first record, record after the last) of each shard."""
    blocks = []
    for name in _split_names(folder):
        first = 0
        for length in _builder(folder).info.splits[name].shard_lengths:
            blocks.append((name, first, first + length))
            first += length
    return blocks


def _examples(folder: str, start: int, stop: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields location and features of each row of a block; pictures stay encoded."""
    import tensorflow_datasets as tfds

    row = 0
    for split, first, after in _blocks(folder):
        if row >= start and row + after - first <= stop:
            wanted = tfds.core.ReadInstruction(split, from_=first, to=after, unit="abs")
            skip = {name: tfds.decode.SkipDecoding() for name in _roles(folder).pictures}
            config = tfds.ReadConfig(interleave_cycle_length=1)
            records = _builder(folder).as_dataset(split=wanted, decoders=skip or None, read_config=config)
            for record, example in enumerate(records.as_numpy_iterator(), first):
                yield f"{folder}, {split} record {record}", example
        row += after - first


@functools.lru_cache(maxsize=4)
def _survey(folder: str) -> RecordIndex:
    roles = _roles(folder)
    ids: list[str] = []
    places: list[str] = []
    rows_of: dict[str, list[int]] = {}
    blocks: list[tuple[int, int]] = []
    for split, first, after in _blocks(folder):
        start = len(ids)
        for place, example in _examples(folder, start, start + after - first):
            rows_of.setdefault(split, []).append(len(ids))
            given = example[roles.id] if roles.id else f"{split}-{len(ids)}"
            ids.append(given.decode() if isinstance(given, bytes) else str(given))
            places.append(place)
        blocks.append((start, len(ids)))
    if {"database", "query"} <= set(rows_of):
        splits, problems = splits_from_groups(folder, ids, places, rows_of)
        return RecordIndex(ids, blocks, splits=splits, classes=roles.classes, problems=problems)
    queries = next((name for name in _QUERY_SPLITS if name in rows_of and len(rows_of) > 1), None)
    is_query = None
    if queries is not None:
        is_query = np.zeros(len(ids), bool)
        is_query[rows_of[queries]] = True
    return RecordIndex(ids, blocks, is_query, classes=roles.classes, problems=repeated_ids(ids, places))


def _record(example: dict[str, Any], roles: Roles, item_id: str, place: str, row: int) -> PairRecord:
    fields: dict[str, Any] = {}
    image = example[roles.image]
    if roles.image in roles.pictures:
        check_picture(image, place)
        fields["image_bytes"] = image
    else:
        fields["image"] = check_vector(image, "image", place)
    if roles.text is not None:
        fields["text"] = check_vector(example[roles.text], "text", place)
    if roles.caption is not None:
        fields["caption"] = caption_of(example, roles.caption, place, row)
        if not fields["caption"] and roles.text is None:
            raise DataError(f"{place}: every pair must have a caption. Received: an empty `{roles.caption[0]}`.")
    if roles.labels is not None:
        fields["labels"] = labels_of(example, roles.labels, roles.num_labels)
    return PairRecord(item_id, place, **fields)
