"""The folder of Parquet parts that `python -m cmimh_tf.spark features` writes.

_pairs.json              what the parts are made from, and their names and sizes once all are there
part-00000-of-00012.parquet

Columns: `id`, `image` and `text` (vectors), `labels` (0 or 1 for each class), `split`, `caption`, `picture` (a path)
and `metadata` (JSON). Names that begin with an underscore are ignored by Spark and other readers of Parquet folders.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.checksums import verify
from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.records import PairReader, PairRecord, RecordIndex
from cmimh_tf.data.splits import splits_from_marks
from cmimh_tf.files import files_fingerprint, read_json

PARTS_FILE = "_pairs.json"
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class PartsReader(PairReader):
    """Vectors in Parquet parts; each part is a block.

    Args:
        path: the folder.
    """

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def fingerprint(self) -> str:
        return files_fingerprint([self.path / PARTS_FILE])

    @property
    def num_bytes(self) -> int:
        """The size of all files, about that of the vectors in them."""
        return sum((self.path / name).stat().st_size for name, _ in self._description["parts"])

    def survey(self) -> RecordIndex:
        return _survey(self, (self.path / PARTS_FILE).stat().st_mtime_ns)

    def scan(self, start: int, stop: int) -> Iterator[PairRecord | DataError]:
        columns = ["id", "image", "text", "labels", "caption"]
        for path, first, batch in self._batches(start, stop, columns):
            lists = {name: _rows_of_lists(batch.column(name)) for name in ("image", "text", "labels")}
            texts = {name: batch.column(name).to_pylist() for name in ("id", "caption")}
            for row in range(batch.num_rows):
                vectors = {name: values[row] for name, values in lists.items() if values is not None}
                yield PairRecord(
                    texts["id"][row], f"{path}, row {first + row}", caption=texts["caption"][row], **vectors
                )

    def rows(self, start: int, stop: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yields for each row of a block its location, and the metadata with the path of the picture as `image`."""
        for path, first, batch in self._batches(start, stop, ["picture", "metadata"]):
            for row, values in enumerate(batch.to_pylist(), first):
                yield f"{path}, row {row}", {"image": values["picture"], **json.loads(values["metadata"] or "{}")}

    def _batches(self, start: int, stop: int, columns: list[str]) -> Iterator[tuple[Path, int, Any]]:
        """The file, the first row in it, and the columns, for each batch of the part with the rows of a block."""
        from pyarrow import lib, parquet

        path = self.path / self._names[start, stop]
        verify(path)
        try:
            with parquet.ParquetFile(path) as file:
                first = 0
                for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                    yield path, first, batch
                    first += batch.num_rows
        except (lib.ArrowException, OSError) as error:
            raise DataError(f"{path}: must be a Parquet file with {', '.join(columns)}. Received: {error}.") from error

    @property
    def _description(self) -> Mapping[str, Any]:
        return _read_description(self.path, (self.path / PARTS_FILE).stat().st_mtime_ns)

    @property
    def _names(self) -> Mapping[tuple[int, int], str]:
        """The file of each block."""
        names, sizes = zip(*self._description["parts"], strict=True)
        return dict(zip(itertools.pairwise([0, *itertools.accumulate(sizes)]), names, strict=True))


@functools.lru_cache(maxsize=4)
def _read_description(folder: Path, modified_at: int) -> Mapping[str, Any]:
    description = read_json(folder / PARTS_FILE)
    if "parts" not in description:
        raise DataError(
            f"{folder}: all parts must exist. Received: a folder that python -m cmimh_tf.spark features was writing "
            "when it was stopped. Run the same command again."
        )
    return description


@functools.lru_cache(maxsize=4)
def _survey(reader: PartsReader, modified_at: int) -> RecordIndex:
    ids: list[str] = []
    marks: list[str] = []
    for start, stop in reader._names:
        for _, _, batch in reader._batches(start, stop, ["id", "split"]):
            ids += batch.column("id").to_pylist()
            marks += [mark or "" for mark in batch.column("split").to_pylist()]
    problems: list[DataError] = []
    splits, is_query = splits_from_marks(marks, reader.path, problems)
    return RecordIndex(ids, list(reader._names), is_query, splits, reader._description["classes"], problems)


def _rows_of_lists(column: Any) -> np.ndarray | None:
    """[rows, width], or None for a column of nulls."""
    if column.null_count == len(column):
        return None
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
