"""Tables of pictures and captions in three formats: CSV, JSON lines and Parquet. `tables` documents the columns."""

from __future__ import annotations

import csv
import functools
import importlib.util
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.readers.tables import COLUMNS, Row, TableReader, check_header, column_names, rename_columns

# Python's limit is 128 KB; some captions on the web are longer.
_MAX_CSV_CHARACTERS = 1 << 24


@dataclass(frozen=True)
class CsvReader(TableReader):
    """A CSV file in UTF-8 with a header."""

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, Row | DataError]]:
        yield from _read_csv(self.path, self.path.stat().st_mtime_ns)[start:stop]


@functools.lru_cache(maxsize=2)
def _read_csv(path: Path, modified_at: int) -> list[tuple[str, Row | DataError]]:
    """All rows. A quoted field may span lines, so a row can only be found by reading all rows before it."""
    rows: list[tuple[str, Row | DataError]] = []
    before = csv.field_size_limit(_MAX_CSV_CHARACTERS)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            # Without `strict`, an unclosed quote would swallow all rows up to the next quote.
            reader = csv.DictReader(file, strict=True)
            reader.fieldnames = column_names(reader.fieldnames or [], path)
            check_header(list(reader.fieldnames), path)
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                rows.append((place, _check_field_count(row, place)))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: must be UTF-8. Received: {error}.") from error
    except csv.Error as error:
        # `DictReader` counts up to the last complete row, its inner reader up to the error.
        first, last = reader.line_num + 1, reader.reader.line_num
        lines = f"line {last}" if first == last else f"lines {first} to {last}"
        raise DataError(f"{path}, {lines}: must be CSV, with every quote closed. Received: {error}.") from error
    finally:
        csv.field_size_limit(before)
    return rows


def _check_field_count(row: dict[str | Any, Any], place: str) -> Row | DataError:
    if None in row or None in row.values():
        return DataError(f"{place}: must have as many fields as the header. Received: {row.get(None) or 'fewer'}.")
    return row


@dataclass(frozen=True)
class JsonLinesReader(TableReader):
    """A .jsonl file in UTF-8, one object per line. Empty lines are skipped."""

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, Row | DataError]]:
        starts = _line_starts(self.path, self.path.stat().st_mtime_ns)
        with self.path.open("rb") as file:
            for number, offset in itertools.islice(starts, start, stop):
                file.seek(offset)
                place = f"{self.path}, line {number}"
                row = _parse_json(file.readline(), place)
                if offset == starts[0][1] and not isinstance(row, DataError):
                    check_header(list(row), self.path)
                yield place, row


@functools.lru_cache(maxsize=4)
def _line_starts(path: Path, modified_at: int) -> list[tuple[int, int]]:
    """(line number from 1, offset in bytes) of each line that is not empty."""
    starts, offset = [], 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                starts.append((number, offset))
            offset += len(line)
    return starts


def _parse_json(line: bytes, place: str) -> Row | DataError:
    try:
        row = json.loads(line)
    except ValueError as error:  # The line is not UTF-8, or not JSON.
        return DataError(f"{place}: must be one JSON object. Received: {line[:60]!r} ({error}).")
    if not isinstance(row, dict):
        return DataError(f"{place}: must be one JSON object. Received: {line[:60]!r}.")
    try:
        return rename_columns(row, place)
    except DataError as error:
        return error


@dataclass(frozen=True)
class ParquetReader(TableReader):
    """A .parquet file. Pictures are paths, bytes or {bytes, path}."""

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
        except Exception as error:  # Damaged bytes raise errors of many kinds.
            raise DataError(f"{self.path}, row {first}: cannot be read, the file is damaged ({error}).") from error
        for row, values in enumerate(table.slice(start - first, stop - start).to_pylist(), start):
            place = f"{self.path}, row {row}"
            yield place, rename_columns(values, place)

    def _open(self) -> Any:
        if importlib.util.find_spec("pyarrow") is None:
            raise ImportError("Parquet files need pyarrow. Install with: pip install pyarrow")
        from pyarrow import lib, parquet

        try:
            return parquet.ParquetFile(self.path)
        except (lib.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: must be a Parquet file. Received: {error}.") from error
