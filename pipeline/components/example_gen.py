"""ExampleGen: reads any source of pairs with Beam and writes tf.Examples in the splits train, database and query."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from tfx.components.util import examples_utils
from tfx.dsl.component.experimental.annotations import BeamComponentParameter, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.proto import example_gen_pb2
from tfx.types.standard_artifacts import Examples

from cmimh_tf.data.readers.tfrecord import make_example
from cmimh_tf.data.records import DataError, PairReader, RecordIndex
from cmimh_tf.data.sources import open_records
from cmimh_tf.data.splits import Splits, make_splits
from cmimh_tf.features.registry import DEFAULT_IMAGE_FEATURES, DEFAULT_TEXT_FEATURES
from pipeline.examples import ID, IMAGE, IMAGE_BYTES, POSITION, SPLITS
from pipeline.network_features import VERSIONS_FILE, NetworkFeatures, feature_versions

# Stands for None, which TFX parameters cannot be.
DEFAULT_COUNT = 0


@component(use_beam=True)
def PairExampleGen(
    examples: OutputArtifact[Examples],
    source: Parameter[str],
    fingerprint: Parameter[str],
    seed: Parameter[int],
    num_queries: Parameter[int] = DEFAULT_COUNT,
    num_train: Parameter[int] = DEFAULT_COUNT,
    protocol: Parameter[str] = "all",
    image_features: Parameter[str] = DEFAULT_IMAGE_FEATURES,
    text_features: Parameter[str] = DEFAULT_TEXT_FEATURES,
    features_version: Parameter[str] = "",
    features_cache: Parameter[str] = "",
    beam_pipeline: BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    """Reads, checks and splits pairs.

    Args:
        examples: tf.Examples; train is a subset of database, and query is disjoint from both.
        source: the name of a data set, or a path; see `cmimh_tf.data.sources.open_records`.
        fingerprint: of the data, so that changed data are read again.
        seed: of the split, by the rule of `cmimh_tf.data.splits`.
        num_queries: 0 for the rule's default.
        num_train: 0 for the default of the protocol.
        protocol: "all", or "paper" for at most 5,000 training pairs.
        image_features: name of the features of pictures. Networks run here, other features in Transform.
        text_features: name of the features of captions, likewise.
        features_version: of both, so that changed weights lead to new Examples.
        features_cache: folder that keeps computed features if the run is interrupted; "" for none.
        beam_pipeline: the Beam pipeline to run on.
    """
    features = NetworkFeatures.in_cache(image_features, text_features, features_cache, fingerprint)
    write_examples(
        beam_pipeline,
        open_records(source),
        examples.uri,
        seed,
        num_queries or None,
        num_train or None,
        features,
        protocol,
    )
    with tf.io.gfile.GFile(f"{examples.uri}/{VERSIONS_FILE}", "w") as file:
        file.write(json.dumps(feature_versions(image_features, text_features)))
    features.clear()
    examples.split_names = json.dumps(list(SPLITS))
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)


def write_examples(
    beam_pipeline: beam.Pipeline,
    reader: PairReader,
    uri: str,
    seed: int,
    num_queries: int | None = None,
    num_train: int | None = None,
    features: NetworkFeatures | None = None,
    protocol: str = "all",
) -> None:
    """Writes `uri`/Split-<name>/data_tfrecord-*.gz for the three splits.

    Raises:
        DataError: if the data are invalid; the message names the file and the record.
    """
    index = reader.index()
    splits = choose_splits(index, seed, num_queries, num_train, protocol)
    if features is not None:
        features = dataclasses.replace(features, num_rows=len(index.ids))
    with beam_pipeline as root:
        rows = (
            root
            | "Blocks" >> beam.Create(index.blocks)
            # Without it, the worker that created the list would read all blocks.
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadBlock(reader, index.ids, features))
            | "Assign" >> beam.ParDo(_AssignSplits(splits, len(index.ids))).with_outputs(*SPLITS)
        )
        for split in SPLITS:
            rows[split] | f"Write {split}" >> beam.io.WriteToTFRecord(
                f"{uri}/Split-{split}/data_tfrecord", file_name_suffix=".gz"
            )


def choose_splits(
    index: RecordIndex, seed: int, num_queries: int | None, num_train: int | None, protocol: str = "all"
) -> Splits:
    """The source's official splits, with the training set cut to `num_train`, or else the splits of the seed.

    Raises:
        DataError: if the splits cannot have the requested sizes.
    """
    if index.splits is not None:
        most = len(index.splits.train)
        if num_queries is not None:
            raise DataError(f"`queries` must not be given with official splits. Received: {num_queries}.")
        if num_train is not None and not 1 <= num_train <= most:
            raise DataError(f"`train_pairs` must be in 1..{most} (the official training set). Received: {num_train}.")
        return dataclasses.replace(index.splits, train=index.splits.train[:num_train])
    try:
        return make_splits(
            len(index.ids),
            seed,
            num_queries=num_queries,
            num_train=num_train,
            protocol=protocol,
            is_query=index.is_query,
        )
    except ValueError as error:
        raise DataError(f"The data cannot be split, or a split would be empty: {error}") from error


class _ReadBlock(beam.DoFn):
    """(start, stop) -> (row, features with the id) for each pair of the block."""

    def __init__(self, reader: PairReader, ids: list[str], features: NetworkFeatures | None):
        self._reader = reader
        self._ids = ids
        self._features = features

    def process(self, block: tuple[int, int]) -> Iterator[tuple[int, dict[str, Any]]]:
        start, stop = block
        rows: Iterator[dict[str, Any]] = (
            _hashed_features(record.features()) for record in self._reader.read(start, stop)
        )
        if self._features is not None:
            rows = self._features.add(rows, start)
        for row, features in enumerate(rows, start):
            yield row, {**features, ID: self._ids[row]}


def _hashed_features(features: dict[str, Any]) -> dict[str, Any]:
    """Drops the picture of a pair that has an image vector: only the vector is hashed."""
    if IMAGE in features:
        features.pop(IMAGE_BYTES, None)
    return features


class _AssignSplits(beam.DoFn):
    """(row, features) -> serialized Examples, tagged with each split that holds the row."""

    def __init__(self, splits: Splits, num_rows: int):
        self._positions = {name: np.full(num_rows, -1, np.int64) for name in SPLITS}
        for name, positions in self._positions.items():
            rows = getattr(splits, name)
            positions[rows] = np.arange(len(rows))

    def process(self, element: tuple[int, dict[str, Any]]) -> Iterator[beam.pvalue.TaggedOutput]:
        row, features = element
        for name, positions in self._positions.items():
            if positions[row] >= 0:
                example = make_example({**features, POSITION: positions[row]})
                yield beam.pvalue.TaggedOutput(name, example.SerializeToString(deterministic=True))
