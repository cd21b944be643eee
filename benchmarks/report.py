"""How every benchmark tells its figures: as a table, and with `--json FILE` as a file."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Attributes:
        name: its key in the JSON file; the headline figure of a benchmark is called `ratio`.
        value: the number.
        meaning: what it is, in a few words, for the table.
        unit: of the value, for the table.
        at_most: the limit that it should keep, if there is one.
    """

    name: str
    value: float
    meaning: str
    unit: str = ""
    at_most: float | None = None


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Adds `--json FILE` to a benchmark's flags."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")


def report(title: str, figures: Sequence[Figure], json_path: Path | None = None) -> None:
    """Prints the figures and, given a path, writes them as {name: value}.

    Raises:
        ValueError: if none of the figures, or more than one, is called `ratio`.
    """
    names = [figure.name for figure in figures]
    if names.count("ratio") != 1:
        raise ValueError(f"`figures` must hold one that is named 'ratio'. Received: names={names}.")
    print(_table(title, figures))
    if json_path is not None:
        _write_atomically(json_path, json.dumps({figure.name: figure.value for figure in figures}, indent=2) + "\n")


def _table(title: str, figures: Sequence[Figure]) -> str:
    rows = [(figure.meaning, f"{figure.value:,.3g} {figure.unit}".strip(), _verdict(figure)) for figure in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"  {meaning:<{widths[0]}}  {value:>{widths[1]}}  {verdict}".rstrip() for meaning, value, verdict in rows]
    return "\n".join([title, *lines])


def _verdict(figure: Figure) -> str:
    if figure.at_most is None:
        return ""
    return f"{'ok' if figure.value <= figure.at_most else 'OVER'} (at most {figure.at_most:,.3g})"


def _write_atomically(path: Path, text: str) -> None:
    """A reader sees the old file or the whole new one, even if this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
