"""Loads the codes that Spark has computed into an index. One process: an index has one writer at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.checksums import verify
from cmimh_tf.files import read_json
from cmimh_tf.progress import ProgressBar
from cmimh_tf.search.api import Index, open_index
from cmimh_tf.search.engines.addresses import create_engine, open_engine
from cmimh_tf.search.engines.interface import Header, IndexNotFound, ModelStamp
from cmimh_tf.search.models import ModelMismatch
from cmimh_tf.search.results import Added
from cmimh_tf.spark.hashing import CODES_FILE, SCHEMA_KEY

_ITEMS_AT_ONCE = 65_536


def load_codes(codes: Path, address: str) -> Added:
    """Adds all codes of a folder to an index, which is made if there is none.

    Every batch of 65,536 items is one change. An item with the id of another one replaces it, so that after a kill the
    same call completes the index.

    Args:
        codes: the folder of `compute_codes`.
        address: of the index.

    Raises:
        FileNotFoundError, ValueError: if the folder is missing, incomplete or holds something else.
        ModelMismatch: if the codes of the index were made by another model.
    """
    description = read_description(codes)
    added = replaced = 0
    with _open_or_create(address, description) as index, ProgressBar(description["pairs"], "adding", "items") as bar:
        for fields in _batches(codes, description):
            result = index.add_codes(**fields)
            added, replaced = added + result.added, replaced + result.replaced
            bar.update(result.added)
        with index.writing() as writer:
            writer.add_source(description["source"])
    return Added(added, replaced)


def read_description(codes: Path) -> dict[str, Any]:
    """What a complete folder of codes says about itself.

    Raises:
        FileNotFoundError, ValueError: as `load_codes`.
    """
    path = codes / CODES_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"`codes` must be a folder that python -m cmimh_tf.spark hash has written, with {CODES_FILE}. Received: "
            f"{codes}{'' if codes.exists() else ', which does not exist'}."
        )
    description = read_json(path)
    if "parts" not in description:
        raise ValueError(
            f"`codes` must be complete. Received: {codes}, which python -m cmimh_tf.spark hash was writing when it was "
            "stopped. Run the same command again."
        )
    return description


def _open_or_create(address: str, description: dict[str, Any]) -> Index:
    stamp = ModelStamp(**description["model"])
    try:
        index = open_index(address)
    except IndexNotFound:
        create_engine(address, Header(description["code_length"], stamp))
        return Index(open_engine(address))
    known = index.header.model
    if known is None or known.fingerprint != stamp.fingerprint:
        index.close()
        raise ModelMismatch(
            f"{index.address} must hold codes of the model that made the new ones, {stamp.describe()}. Received: codes "
            f"of {known.describe() if known else 'an unknown model'}. Choose another index."
        )
    return index


def _batches(codes: Path, description: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields of `Index.add_codes`."""
    from pyarrow import lib, parquet

    for name, _ in description["parts"]:
        path = codes / name
        verify(path)
        try:
            with parquet.ParquetFile(path) as file:
                made_by = json.loads((file.schema_arrow.metadata or {}).get(SCHEMA_KEY, b"{}"))
                if made_by.get("model") != description["model"]:
                    raise ModelMismatch(f"{path} must hold codes of the model in {CODES_FILE}. Received: other codes.")
                for batch in file.iter_batches(_ITEMS_AT_ONCE):
                    columns = batch.to_pydict()
                    sides = {
                        f"{side}_codes": np.frombuffer(b"".join(columns[f"{side}_code"]), np.uint8).reshape(
                            batch.num_rows, -1
                        )
                        for side in ("image", "text")
                    }
                    metadata = [json.loads(text) if text else None for text in columns["metadata"]]
                    yield {
                        "ids": columns["id"],
                        **sides,
                        "captions": columns["caption"],
                        "pictures": columns["picture"],
                        "metadata": metadata,
                    }
        except (lib.ArrowException, OSError) as error:
            raise ValueError(f"{path} must be a Parquet file of codes. Received: {error}.") from error
