"""Computes the vectors of all pairs of a source: shards of tf.Examples, or an .npz made from such shards.

A shard appears under its name only when it is complete, and existing shards are not computed again. Only a few batches
of pairs are in memory at a time, and the ids of all pairs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.data.npz import read_made_from, records_to_npz
from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.readers.tfrecord import make_example
from cmimh_tf.data.records import PairReader, PairRecord, RecordIndex
from cmimh_tf.data.sources import open_records
from cmimh_tf.features.beam_run import WorkerReports, run_on_beam
from cmimh_tf.features.compute import compute_vectors
from cmimh_tf.features.registry import image_features_version, text_features_version
from cmimh_tf.features.shards import Portion, ShardFolder, plan_shards
from cmimh_tf.files import atomic_path, remove_folder
from cmimh_tf.progress import ProgressBar

PAIRS_PER_SHARD = 512
FROM_THE_DATA = "vectors of the data"
# Pairs in memory at a time: several batches, so that decoding can run ahead of the network.
_PAIRS_AT_ONCE = 128


def check_features(image_features: str, text_features: str) -> None:
    """Checks names of features without computing anything. Does not import TensorFlow.

    Raises:
        ValueError: if a name is unknown, or the features have to be fitted.
        FileNotFoundError: if a name refers to a missing file.
        ImportError: if the package with the weights is not installed.
    """
    if text_features == "bag_of_words":
        raise ValueError(
            "`text_features` must not be bag_of_words here: its words come from the training pairs, and this command "
            "does not split the data. `pipeline/run_local.py` fits it. Received: 'bag_of_words'."
        )
    if image_features:
        image_features_version(image_features)
    if text_features:
        text_features_version(text_features)


def featurize(
    reader: PairReader,
    out: Path,
    *,
    image_features: str,
    text_features: str,
    pairs_per_shard: int = PAIRS_PER_SHARD,
    overwrite: bool = False,
) -> int:
    """Writes the vectors of all pairs, with ids, and with labels, captions and official splits if there are any.

    Vectors that the source already has are copied.

    Args:
        reader: the source, from `open_records`.
        out: a folder for shards and pairs.json; or an .npz, whose shards are in `<out>.shards` until it is complete.
        image_features, text_features: names from `cmimh_tf.features.registry`.
        pairs_per_shard: approximate size of a shard. A killed run loses at most one shard.
        overwrite: remove shards of other data or features from the folder, or replace an .npz of other data.

    Returns:
        The number of pairs.

    Raises:
        DataError: naming the record with an error.
        ValueError: if the features have to be fitted, or the folder or the .npz holds something else.
    """
    index = reader.index()
    featurizer = make_featurizer(reader, image_features, text_features)
    portions = plan_shards(index, pairs_per_shard)
    identity = featurizer.identity(reader, pairs_per_shard)
    to_npz = out.suffix.lower() == ".npz"
    if to_npz and out.exists() and not overwrite and read_made_from(out).get("data") != identity["data"]:
        raise ValueError(
            f"`out` must be a new file, or one that this command made from the same data. Received: {out}. Use "
            "--overwrite to replace it."
        )
    folder = ShardFolder(out.with_name(f"{out.name}.shards") if to_npz else out)
    with folder.claimed(identity, overwrite=overwrite or to_npz):
        _write_shards(ShardWriter(reader, folder.path, featurizer), folder, portions)
        first = open_records(str(folder.path / portions[0].shards[0].name))
        # `survey`, not `index`: one shard alone may hold only queries, or none, which `index` would reject.
        widths = next(first.read(*first.survey().blocks[0])).widths()
        folder.complete(identity, describe_pairs(index, portions, identity, widths))
    if to_npz:
        records_to_npz(open_records(str(folder.path)), out, identity)
        remove_folder(folder.path)
    return int(index.is_used().sum())


@dataclass(frozen=True)
class Featurizer:
    """Computes the vectors of pairs. Small and picklable: the networks are loaded once per process, on first use.

    Args:
        image_features, text_features: names from `cmimh_tf.features.registry`; "" if the source has vectors.
        widths: widths of `image`, `text` and `labels`, as far as the source has them.
    """

    image_features: str
    text_features: str
    widths: Mapping[str, int]

    def identity(self, reader: PairReader, pairs_per_shard: int) -> dict[str, Any]:
        """Everything that determines the shards of a source, to the bit."""
        return {
            "data": reader.fingerprint(),
            "image_features": image_features_version(self.image_features) if self.image_features else FROM_THE_DATA,
            "text_features": text_features_version(self.text_features) if self.text_features else FROM_THE_DATA,
            "pairs_per_shard": pairs_per_shard,
        }

    def rows(self, pairs: Iterator[tuple[PairRecord, str | None]]) -> Iterator[dict[str, Any]]:
        """Yields the fields of each pair with its vectors, in order.

        The last bits of a vector may depend on the other pairs of its batch. Batches are counted from the first pair,
        so that one call per shard gives the same vectors on every machine.

        Args:
            pairs: records of one shard, each with "train", "database", "query" or None.

        Raises:
            DataError: naming the record with an error.
        """
        while some := list(itertools.islice(pairs, _PAIRS_AT_ONCE)):
            rows = []
            for record, mark in some:
                if record.widths() != self.widths:
                    rule = "must have vectors and labels of the same widths as the first record"
                    raise DataError(f"{record.place}: {rule}, {dict(self.widths)}. Received: {record.widths()}.")
                rows.append({**record.features(), "id": record.id, **({} if mark is None else {"split": mark})})
            vectors = compute_vectors(rows, self.image_features, self.text_features)
            for number, row in enumerate(rows):
                # The vector replaces the picture, which is much larger.
                row.pop("image_bytes", None)
                yield {**row, **{name: values[number] for name, values in vectors.items()}}


def make_featurizer(reader: PairReader, image_features: str, text_features: str) -> Featurizer:
    """The featurizer of a source; features that the source already has are not computed.

    Raises:
        ValueError, FileNotFoundError, ImportError: as `check_features`.
    """
    widths = next(iter(reader)).widths()
    image_features = "" if "image" in widths else image_features
    text_features = "" if "text" in widths else text_features
    check_features(image_features, text_features)
    return Featurizer(image_features, text_features, widths)


@dataclass(frozen=True)
class ShardWriter:
    """Reads a portion of the source, computes vectors and writes shards. Small and picklable: it holds no data.

    Args:
        reader: the source.
        folder: the folder of the shards.
        featurizer: computes the vectors.
    """

    reader: PairReader
    folder: Path
    featurizer: Featurizer

    def write(self, portion: Portion) -> None:
        """Writes the missing shards of a portion.

        Raises:
            DataError: naming the record with an error.
        """
        reports = WorkerReports(self.folder)
        with reports.record_error():
            import tensorflow as tf

            for shard, pairs in portion.missing_shards(self.folder, self.reader.read):
                with (
                    atomic_path(self.folder / shard.name, checksum=True) as temporary,
                    tf.io.TFRecordWriter(str(temporary)) as file,
                ):
                    for number, row in enumerate(self.featurizer.rows(pairs), 1):
                        file.write(make_example(row).SerializeToString(deterministic=True))
                        if number % _PAIRS_AT_ONCE == 0 or number == shard.num_pairs:
                            reports.add((number - 1) % _PAIRS_AT_ONCE + 1)


def _write_shards(writer: ShardWriter, folder: ShardFolder, portions: list[Portion]) -> None:
    shards = [shard for portion in portions for shard in portion.shards]
    unfinished = folder.unfinished(portions)
    if not unfinished:
        return
    total = sum(shard.num_pairs for shard in shards)
    done = sum(shard.num_pairs for shard in shards if folder.has(shard))
    reports = WorkerReports(folder.path)
    reports.clear()
    try:
        with ProgressBar(total, "features", "pairs", initial=done) as bar, reports.update(bar):
            run_on_beam(writer.write, unfinished)
    except Exception as error:
        if message := reports.error():
            raise DataError(message) from error
        raise
    reports.clear()


def describe_pairs(
    index: RecordIndex, portions: list[Portion], identity: dict[str, Any], widths: Mapping[str, int]
) -> dict[str, Any]:
    """The content of pairs.json for complete shards, whose vectors and labels have these widths."""
    shards = [shard for portion in portions for shard in portion.shards]
    marks = index.split_marks()
    return {
        "pairs": sum(shard.num_pairs for shard in shards),
        "shards": len(shards),
        **{name: {"features": identity[f"{name}_features"], "width": widths[name]} for name in ("image", "text")},
        "labels": widths.get("labels", 0),
        "classes": index.classes,
        "splits": None if marks is None else dict(Counter(marks[index.is_used()].tolist())),
    }
