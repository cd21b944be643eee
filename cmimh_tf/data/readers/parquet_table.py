"""Pictures and captions, or vectors, by a Parquet file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cmimh_tf.data.readers.tables import COLUMNS, Row, TableReader, check_header, column_names, with_columns
from cmimh_tf.data.records import DataError


@dataclass(frozen=True)
class ParquetReader(TableReader):
    """A .parquet file; see `tables` for the columns. Pictures are paths, bytes or {bytes, path}."""

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, Row | DataError]]:
        with self._open() as file:
            columns = column_names(file.schema_arrow.names, self.path)
            check_header(columns, self.path)
            names = [name for name, column in zip(file.schema_arrow.names, columns, strict=True) if column in COLUMNS]
            first = 0
            for group in range(file.num_row_groups):
                after = first + file.metadata.row_group(group).num_rows
                if after > start and (stop is None or first < stop):
                    yield from self._group(file, group, names, first, max(start, first), min(stop or after, after))
                first = after

    def _group(
        self, file: Any, group: int, names: list[str], first: int, start: int, stop: int
    ) -> Iterator[tuple[str, Row | DataError]]:
        try:
            table = file.read_row_group(group, columns=names)
        except Exception as error:  # Damaged bytes surface as errors of many kinds.
            raise DataError(f"{self.path}, row {first}: cannot be read, the file is damaged ({error}).") from error
        for row, values in enumerate(table.slice(start - first, stop - start).to_pylist(), start):
            place = f"{self.path}, row {row}"
            yield place, with_columns(values, place)

    def _open(self) -> Any:
        if importlib.util.find_spec("pyarrow") is None:
            raise ImportError("Parquet files need pyarrow. Install with: pip install pyarrow")
        from pyarrow import lib, parquet

        try:
            return parquet.ParquetFile(self.path)
        except (lib.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: must be a Parquet file. Received: {error}.") from error
