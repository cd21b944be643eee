"""Codes of vectors on Spark: the same bits as `python -m cmimh_tf.hash` and `python -m cmimh_tf.index build`."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.records import with_trace
from cmimh_tf.search.adapters import DataSource, SourceItem
from cmimh_tf.search.building import converted_metadata, metadata_kinds
from cmimh_tf.search.items import SIDES
from cmimh_tf.search.models import HashingModel, ModelDescription, describe_model
from cmimh_tf.spark.cluster import Cluster
from cmimh_tf.spark.features import to_json
from cmimh_tf.spark.parts import Pair, PartWriter, plan_parts, write_parts

CODES_FILE = "_codes.json"
# The key in the schema of a part under which `load` finds what made the codes.
SCHEMA_KEY = b"cmimh_tf"
PAIRS_PER_PART = 65_536
_VECTORS_AT_ONCE = 4096


@dataclass(frozen=True)
class CodeRows:
    """The rows of a part from its pairs.

    Args:
        described: the model, loaded once per process.
        kinds: of the metadata, from `metadata_kinds`.
    """

    described: ModelDescription
    kinds: Mapping[str, str]

    def __call__(self, pairs: Iterator[Pair]) -> Iterator[dict[str, Any]]:
        stamp = self.described.stamp
        hasher = _load(str(self.described.path), stamp.fingerprint)
        while some := list(itertools.islice(pairs, _VECTORS_AT_ONCE)):
            items = [item for (_, item), _ in some]
            for item in items:
                check_vectors(item, self.described)
            image_codes, _ = hasher.hash_images(list(with_trace(np.stack([item.image for item in items]))))
            text_codes, _ = hasher.hash_texts(list(with_trace(np.stack([item.text for item in items]))))
            for item, image_code, text_code in zip(items, image_codes, text_codes, strict=True):
                yield {
                    "id": item.id,
                    "image_code": image_code.tobytes(),
                    "text_code": text_code.tobytes(),
                    "caption": item.caption,
                    "picture": item.picture,
                    "metadata": to_json(converted_metadata(item, self.kinds)),
                }


@functools.lru_cache(maxsize=1)
def _load(model: str, fingerprint: str) -> HashingModel:
    described = describe_model(model)
    if described.stamp.fingerprint != fingerprint:
        raise ValueError(
            f"`model` must be the same on every machine, with fingerprint {fingerprint}. Received: "
            f"{described.stamp.describe()}."
        )
    return HashingModel(described)


def check_vectors(item: SourceItem, described: ModelDescription) -> None:
    """Raises DataError if an item has no vectors of the widths that the model takes."""
    for side in SIDES:
        vector, width = getattr(item, side), described.widths[side]
        if not isinstance(vector, np.ndarray):
            raise DataError(
                f"{item.place}: `{side}` must be a vector of width {width}. Received: a picture or caption. Compute "
                "vectors first: python -m cmimh_tf.spark features"
            )
        if len(vector) != width:
            raise DataError(
                f"{item.place}: `{side}` must have the width that the model takes, {width}. Received: {len(vector)}."
            )


def compute_codes(
    model: str, data: str, out: Path, cluster: Cluster, *, pairs_per_part: int = PAIRS_PER_PART, overwrite: bool = False
) -> int:
    """Writes the codes of all pairs as Parquet parts; returns the number of pairs.

    Args:
        model: a run folder, an exported model, or a folder of exported versions.
        data: vectors: what `compute_features` wrote, or others that every command takes.
        out: the folder.
        cluster: where the tasks run.
        pairs_per_part: approximate size of a part.
        overwrite: remove parts of other data or another model.

    Raises:
        ValueError, UserError: as `write_parts`, or if the model takes vectors of another width.
    """
    import pyarrow

    described = describe_model(model)
    source = DataSource(data)
    check_vectors(next(source.read()), described)
    made_by = {
        "code_length": described.code_length,
        "model": asdict(described.stamp),
        "source": {"data": source.spec, "fingerprint": source.fingerprint()},
    }
    names = ("caption", "picture", "metadata")
    columns = {"id": pyarrow.string(), "image_code": pyarrow.binary(), "text_code": pyarrow.binary()}
    schema = pyarrow.schema({**columns, **{name: pyarrow.string() for name in names}})
    writer = PartWriter(
        source.for_workers(),
        out.absolute(),
        schema.with_metadata({SCHEMA_KEY: json.dumps(made_by).encode()}),
        CodeRows(described, metadata_kinds(source, {})),
    )
    identity = {
        "data": source.fingerprint(),
        "model": described.stamp.fingerprint,
        "pairs_per_part": pairs_per_part,
    }
    describe: Callable[..., dict[str, Any]] = functools.partial(dict, made_by, pairs=len(source))
    write_parts(
        writer, plan_parts(source, pairs_per_part), identity, CODES_FILE, describe, cluster, overwrite=overwrite
    )
    return len(source)
