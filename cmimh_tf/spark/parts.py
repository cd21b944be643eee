"""Folders of Parquet parts, which tasks on Spark write one by one.

A part appears under its name only when it is complete, by an atomic rename. A task that Spark repeats, after a lost
executor or in a command that is given again, writes the parts that are missing and keeps the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.command_line import UserError
from cmimh_tf.data.records import PairRecord
from cmimh_tf.features.shards import Portion, ShardFolder, plan_shards
from cmimh_tf.files import atomic_path
from cmimh_tf.progress import ProgressBar
from cmimh_tf.search.adapters import DataSource, SourceItem
from cmimh_tf.spark.cluster import Cluster, run_tasks

_NAME = "part-{:05d}-of-{:05d}.parquet"
_PATTERN = "part-*-of-*.parquet"
_ROWS_PER_GROUP = 4096

# A record, what is shown of it, and "train", "database", "query" or None.
Pair = tuple[tuple[PairRecord, SourceItem], str | None]


@dataclass(frozen=True)
class PartWriter:
    """Reads a portion of the data and writes its parts. Small and picklable.

    Args:
        source: the data, `for_workers`.
        folder: the folder of the parts.
        schema: of pyarrow.
        make_rows: the rows of one part from its pairs; picklable.
    """

    source: DataSource
    folder: Path
    schema: Any
    make_rows: Callable[[Iterator[Pair]], Iterator[dict[str, Any]]]

    def write(self, portion: Portion) -> int:
        """Writes the missing parts of a portion; returns how many pairs they have."""
        import pyarrow
        from pyarrow import parquet

        written = 0
        for shard, pairs in portion.missing_shards(self.folder, self.source.read_block):
            rows = self.make_rows(pairs)
            with (
                atomic_path(self.folder / shard.name, checksum=True) as temporary,
                parquet.ParquetWriter(temporary, self.schema) as file,
            ):
                while some := list(itertools.islice(rows, _ROWS_PER_GROUP)):
                    file.write_table(pyarrow.Table.from_pylist(some, self.schema))
            written += shard.num_pairs
        return written


def write_parts(
    writer: PartWriter,
    portions: list[Portion],
    identity: dict[str, Any],
    description_file: str,
    describe: Callable[[], dict[str, Any]],
    cluster: Cluster,
    *,
    overwrite: bool,
) -> None:
    """Writes all missing parts on Spark, and then the description that makes the folder complete.

    Args:
        writer: writes the parts.
        portions: of `plan_parts`.
        identity: everything that determines the parts; other parts are in the way.
        description_file: the name of the description.
        describe: what the description says beside the names and sizes of the parts, once all are there.
        cluster: where the tasks run. Spark is not started if nothing is missing.
        overwrite: remove parts of another identity.

    Raises:
        ValueError: if the folder holds something else, or a task found an error in the data.
        UserError: if Spark failed.
    """
    folder = ShardFolder(writer.folder, description_file, _PATTERN)
    parts = [part for portion in portions for part in portion.shards]
    with folder.claimed(identity, overwrite=overwrite):
        if unfinished := folder.unfinished(portions):
            done = sum(part.num_pairs for part in parts if folder.has(part))
            total = sum(part.num_pairs for part in parts)
            with cluster.context() as context, ProgressBar(total, "Spark", "pairs", initial=done) as bar:
                run_tasks(context, writer.write, unfinished, bar)
        if missing := folder.unfinished(portions):
            raise UserError(
                f"{writer.folder} lacks {missing[0].shards[0].name}, which an executor has written: every machine must "
                "see the folder under the same path, as on a network file system."
            )
        folder.remove_temporary()
        folder.complete(identity, {**describe(), "parts": [[part.name, part.num_pairs] for part in parts]})


def plan_parts(source: DataSource, pairs_per_part: int) -> list[Portion]:
    """The parts of each task.

    Raises:
        ValueError: if `pairs_per_part` is not positive.
    """
    if pairs_per_part < 1:
        raise ValueError(f"The number of pairs per file must be at least 1. Received: {pairs_per_part}.")
    return plan_shards(source.index, pairs_per_part, _NAME)
