"""Pictures and captions, or vectors, by JSON lines: one object a line."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cmimh_tf.data.readers.tables import Row, TableReader, check_header, with_columns
from cmimh_tf.data.records import DataError


@dataclass(frozen=True)
class JsonLinesReader(TableReader):
    """A .jsonl file in UTF-8; see `tables` for the keys. Empty lines are passed over."""

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, Row | DataError]]:
        starts = _line_starts(self.path, self.path.stat().st_mtime_ns)
        with self.path.open("rb") as file:
            for number, offset in itertools.islice(starts, start, stop):
                file.seek(offset)
                place = f"{self.path}, line {number}"
                row = _parse(file.readline(), place)
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


def _parse(line: bytes, place: str) -> Row | DataError:
    try:
        row = json.loads(line)
    except ValueError as error:  # Of the UTF-8 or of the JSON.
        return DataError(f"{place}: must be one JSON object. Received: {line[:60]!r} ({error}).")
    if not isinstance(row, dict):
        return DataError(f"{place}: must be one JSON object. Received: {line[:60]!r}.")
    try:
        return with_columns(row, place)
    except DataError as error:
        return error
