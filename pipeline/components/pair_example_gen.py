"""ExampleGen: any source of pairs to tf.Examples in the splits train, database and query, read by Beam."""

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

from cmimh_tf.data.splits import Splits, make_splits
from cmimh_tf.data.tf_examples import make_example
from cmimh_tf.features.registry import EMOJI_IMAGE_FEATURES, EMOJI_TEXT_FEATURES
from pipeline.block_features import VERSIONS_FILE, BlockFeatures, feature_versions
from pipeline.features import ID, POSITION, SPLITS
from pipeline.sources import DataError, PairSource, SourceIndex, open_source

# What stands for "not given": TFX parameters are never None.
DEFAULT_COUNT = 0


@component(use_beam=True)
def PairExampleGen(
    examples: OutputArtifact[Examples],
    source: Parameter[str],
    fingerprint: Parameter[str],
    seed: Parameter[int],
    num_queries: Parameter[int] = DEFAULT_COUNT,
    num_train: Parameter[int] = DEFAULT_COUNT,
    image_features: Parameter[str] = EMOJI_IMAGE_FEATURES,
    text_features: Parameter[str] = EMOJI_TEXT_FEATURES,
    features_version: Parameter[str] = "",
    features_cache: Parameter[str] = "",
    beam_pipeline: BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    """Reads, checks and splits pairs.

    Args:
        examples: tf.Examples; train is a subset of database, and query disjoint from it.
        source: the name of a data set, or a path; see `open_source`.
        fingerprint: of the data, so that changed data are read again.
        seed: of the split, by the rule of `cmimh_tf.data.splits`.
        num_queries: 0 for the rule's default.
        num_train: 0 for the rule's default.
        image_features: what pictures become; networks run here, others in Transform.
        text_features: what captions become, likewise.
        features_version: of both, so that other weights make other Examples.
        features_cache: a folder where computed features outlive a killed run; "" for none.
        beam_pipeline: what reads.
    """
    features = BlockFeatures.in_cache(image_features, text_features, features_cache, fingerprint)
    write_examples(
        beam_pipeline, open_source(source), examples.uri, seed, num_queries or None, num_train or None, features
    )
    with tf.io.gfile.GFile(f"{examples.uri}/{VERSIONS_FILE}", "w") as file:
        file.write(json.dumps(feature_versions(image_features, text_features)))
    features.clear()
    examples.split_names = json.dumps(list(SPLITS))
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)


def write_examples(
    beam_pipeline: beam.Pipeline,
    source: PairSource,
    uri: str,
    seed: int,
    num_queries: int | None = None,
    num_train: int | None = None,
    features: BlockFeatures | None = None,
) -> None:
    """Writes `uri`/Split-<name>/data_tfrecord-*.gz for the three splits.

    Raises:
        DataError: naming what is wrong with the data.
    """
    index = source.index()
    splits = choose_splits(index, seed, num_queries, num_train)
    if features is not None:
        features = dataclasses.replace(features, num_rows=len(index.ids))
    with beam_pipeline as root:
        rows = (
            root
            | "Blocks" >> beam.Create(index.blocks)
            # Without it all blocks would be read by the worker that made the list.
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadBlock(source, index.ids, features))
            | "Assign" >> beam.ParDo(_AssignSplits(splits, len(index.ids))).with_outputs(*SPLITS)
        )
        for split in SPLITS:
            rows[split] | f"Write {split}" >> beam.io.WriteToTFRecord(
                f"{uri}/Split-{split}/data_tfrecord", file_name_suffix=".gz"
            )


def choose_splits(index: SourceIndex, seed: int, num_queries: int | None, num_train: int | None) -> Splits:
    """The source's own splits, with the head of its training set if fewer are asked for, or those of the seed.

    Raises:
        DataError: if they cannot be as asked for.
    """
    if index.splits is not None:
        most = len(index.splits.train)
        if num_queries is not None:
            raise DataError(f"`queries` must not be given with official splits. Received: {num_queries}.")
        if num_train is not None and not 1 <= num_train <= most:
            raise DataError(f"`train_pairs` must be in 1..{most} (the official training set). Received: {num_train}.")
        return dataclasses.replace(index.splits, train=index.splits.train[:num_train])
    try:
        return make_splits(len(index.ids), seed, num_queries=num_queries, num_train=num_train, is_query=index.is_query)
    except ValueError as error:
        raise DataError(f"The data cannot be split, or a split would be empty: {error}") from error


class _ReadBlock(beam.DoFn):
    """(start, stop) -> (row, features with the id) for each pair of the block."""

    def __init__(self, source: PairSource, ids: list[str], features: BlockFeatures | None):
        self._source = source
        self._ids = ids
        self._features = features

    def process(self, block: tuple[int, int]) -> Iterator[tuple[int, dict[str, Any]]]:
        start, stop = block
        rows = self._source.read(start, stop)
        if self._features is not None:
            rows = self._features.add(rows, start)
        for row, features in enumerate(rows, start):
            yield row, {**features, ID: self._ids[row]}


class _AssignSplits(beam.DoFn):
    """(row, features) -> serialized Examples, tagged with each split that the row is in."""

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
