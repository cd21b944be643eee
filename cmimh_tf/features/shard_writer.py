"""What a worker does: reads a portion of the source, computes vectors, writes shards that appear when complete."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.data.records import DataError, PairReader, PairRecord
from cmimh_tf.features.pair_vectors import compute_vectors
from cmimh_tf.features.shard_plan import Portion, Shard
from cmimh_tf.features.worker_notes import WorkerNotes

TEMPORARY_PREFIX = ".tmp-"
# Pairs in memory at a time: some batches, so that decoding can run ahead of the network.
_PAIRS_AT_ONCE = 128


@dataclass(frozen=True)
class ShardWriter:
    """Small and picklable: names and paths, no data.

    Args:
        reader: of the source.
        folder: of the shards.
        image_features, text_features: names of `cmimh_tf.features.registry`; "" where the source has vectors.
        widths: of `image`, `text` and `labels`, what the source has of them.
    """

    reader: PairReader
    folder: Path
    image_features: str
    text_features: str
    widths: Mapping[str, int]

    def write(self, portion: Portion) -> None:
        """Writes the shards of a portion that are not there.

        Raises:
            DataError: naming the record that is wrong.
        """
        notes = WorkerNotes(self.folder)
        with notes.keep_error():
            records = portion.read(self.reader)
            for shard in portion.shards:
                pairs = itertools.islice(records, shard.num_pairs)
                if (self.folder / shard.name).exists():
                    # Rows of a block can only be reached by reading those before.
                    for _ in pairs:
                        pass
                else:
                    self._write_shard(shard, pairs, notes)

    def _write_shard(self, shard: Shard, pairs: Iterator[tuple[PairRecord, str | None]], notes: WorkerNotes) -> None:
        written = 0
        with _records_file(self.folder / shard.name) as file:
            while some := list(itertools.islice(pairs, _PAIRS_AT_ONCE)):
                for serialized in self._examples(some):
                    file.write(serialized)
                written += len(some)
                notes.add(len(some))
            if written != shard.num_pairs:
                raise DataError(
                    f"{self.reader.name}: the data must not change while they are read. Received: {written} pairs "
                    f"where there were {shard.num_pairs}."
                )

    def _examples(self, pairs: list[tuple[PairRecord, str | None]]) -> Iterator[bytes]:
        from cmimh_tf.data.tf_examples import make_example

        rows = []
        for record, mark in pairs:
            widths = vector_widths(record)
            if widths != self.widths:
                rule = "must have vectors and labels of the same widths as the first record"
                raise DataError(f"{record.place}: {rule}, {dict(self.widths)}. Received: {widths}.")
            rows.append({**record.features(), "id": record.id, **({} if mark is None else {"split": mark})})
        vectors = compute_vectors(rows, self.image_features, self.text_features)
        for number, row in enumerate(rows):
            computed = {name: values[number] for name, values in vectors.items()}
            features: dict[str, Any] = {**row, **computed}
            # The vector stands for it, in far less space.
            features.pop("image_bytes", None)
            yield make_example(features).SerializeToString(deterministic=True)


def vector_widths(record: PairRecord) -> dict[str, int]:
    """What a record has of `image`, `text` and `labels`."""
    arrays = {name: getattr(record, name) for name in ("image", "text", "labels")}
    return {name: len(array) for name, array in arrays.items() if array is not None}


@contextmanager
def _records_file(path: Path) -> Iterator[Any]:
    """A TFRecord file that gets its name when it is complete."""
    import tensorflow as tf

    temporary = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
    try:
        with tf.io.TFRecordWriter(str(temporary)) as file:
            yield file
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
