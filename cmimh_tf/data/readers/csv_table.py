"""Pictures and captions by a CSV file."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.data.readers.tables import Row, TableReader, check_header, column_names
from cmimh_tf.data.records import DataError

# Python refuses fields beyond 128 KB; the longest captions of the web are longer.
_MOST_CHARACTERS = 1 << 24


@dataclass(frozen=True)
class CsvReader(TableReader):
    """A CSV file in UTF-8 with a header; see `tables` for the columns."""

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, Row | DataError]]:
        yield from _read(self.path, self.path.stat().st_mtime_ns)[start:stop]


@functools.lru_cache(maxsize=2)
def _read(path: Path, modified_at: int) -> list[tuple[str, Row | DataError]]:
    """All rows: a quoted field may go over lines, so that no row can be found without those before it."""
    rows: list[tuple[str, Row | DataError]] = []
    before = csv.field_size_limit(_MOST_CHARACTERS)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            # Strict: a quote that is not closed would else take the pairs up to the next one into its field.
            reader = csv.DictReader(file, strict=True)
            reader.fieldnames = column_names(reader.fieldnames or [], path)
            check_header(list(reader.fieldnames), path)
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                rows.append((place, _checked(row, place)))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: must be UTF-8. Received: {error}.") from error
    except csv.Error as error:
        # The outer one counts up to the last whole row, the inner one up to the error.
        first, last = reader.line_num + 1, reader.reader.line_num
        lines = f"line {last}" if first == last else f"lines {first} to {last}"
        raise DataError(f"{path}, {lines}: must be CSV, with every quote closed. Received: {error}.") from error
    finally:
        csv.field_size_limit(before)
    return rows


def _checked(row: dict[str | Any, Any], place: str) -> Row | DataError:
    if None in row or None in row.values():
        return DataError(f"{place}: must have as many fields as the header. Received: {row.get(None) or 'fewer'}.")
    return row
