"""Features of pictures and captions on Spark: the same vectors, to the bit, as `python -m cmimh_tf.features`.

The last bits of a vector may depend on the batch it is computed in. Parts have the pairs of the shards that the other
command writes, and both make batches by `Featurizer.rows`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.readers.parquet_parts import PARTS_FILE
from cmimh_tf.data.records import PairRecord
from cmimh_tf.features.featurize import Featurizer, describe_pairs, make_featurizer
from cmimh_tf.search.adapters import DataSource, SourceItem
from cmimh_tf.search.building import converted_metadata, metadata_kinds
from cmimh_tf.spark.cluster import Cluster
from cmimh_tf.spark.parts import Pair, PartWriter, plan_parts, write_parts


@dataclass(frozen=True)
class FeatureRows:
    """The rows of a part from its pairs.

    Args:
        featurizer: computes the vectors.
        kinds: of the metadata, from `metadata_kinds`.
    """

    featurizer: Featurizer
    kinds: Mapping[str, str]

    def __call__(self, pairs: Iterator[Pair]) -> Iterator[dict[str, Any]]:
        items: deque[SourceItem] = deque()

        def records() -> Iterator[tuple[PairRecord, str | None]]:
            for (record, item), mark in pairs:
                items.append(item)
                yield record, mark

        for row in self.featurizer.rows(records()):
            item = items.popleft()
            if "labels" in row:
                row["labels"] = np.asarray(row["labels"], np.uint8)
            yield {**row, "picture": item.picture, "metadata": to_json(converted_metadata(item, self.kinds))}


def to_json(metadata: Mapping[str, Any]) -> str | None:
    """Metadata as text. Times and other values of Parquet files become strings."""
    return json.dumps(metadata, ensure_ascii=False, default=str) if metadata else None


def compute_features(
    data: str,
    out: Path,
    cluster: Cluster,
    *,
    image_features: str,
    text_features: str,
    pairs_per_shard: int,
    overwrite: bool = False,
) -> int:
    """Writes the vectors of all pairs as Parquet parts; returns the number of pairs.

    Args:
        data: a path or a name, as every command takes it.
        out: the folder.
        cluster: where the tasks run.
        image_features, text_features: names from `cmimh_tf.features.registry`.
        pairs_per_shard: as for `cmimh_tf.features.featurize.featurize`.
        overwrite: remove parts of other data or features.

    Raises:
        ValueError, UserError: as `write_parts`.
    """
    import pyarrow
    from pyarrow import parquet

    source = DataSource(data)
    featurizer = make_featurizer(source.reader, image_features, text_features)
    strings = {name: pyarrow.string() for name in ("split", "caption", "picture", "metadata")}
    vector = pyarrow.list_(pyarrow.float32())
    labels = pyarrow.list_(pyarrow.uint8())
    schema = pyarrow.schema({"id": pyarrow.string(), "image": vector, "text": vector, "labels": labels, **strings})
    portions = plan_parts(source, pairs_per_shard)
    identity = featurizer.identity(source.reader, pairs_per_shard)
    out = out.absolute()

    def describe() -> dict[str, Any]:
        with parquet.ParquetFile(out / portions[0].shards[0].name) as file:
            [first] = next(file.iter_batches(1, columns=["image", "text", "labels"])).to_pylist()
        widths = {name: len(values) for name, values in first.items() if values is not None}
        return describe_pairs(source.index, portions, identity, widths)

    rows = FeatureRows(featurizer, metadata_kinds(source, {}))
    writer = PartWriter(source.for_workers(), out, schema, rows)
    write_parts(writer, portions, identity, PARTS_FILE, describe, cluster, overwrite=overwrite)
    return len(source)
