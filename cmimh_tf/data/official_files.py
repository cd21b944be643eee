"""What the builders of published data sets share: files that must be there, whole, and of the right length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cmimh_tf.data.records import DataError

# The end of a picture may be followed by a few bytes of a camera's own.
_TAIL_BYTES = 1 << 16
_END_MARKS = {b"\xff\xd8": b"\xff\xd9", b"\x89PNG": b"IEND", b"GIF8": b";", b"BM": b""}


class OfficialPairs(Protocol):
    """The pairs of a data set that its rule keeps, in the order of the official files."""

    @property
    def ids(self) -> list[str]:
        """One a pair, no two equal."""

    @property
    def is_query(self) -> np.ndarray | None:
        """bool [N], an official query set, or None."""

    def example(self, row: int) -> dict[str, Any]:
        """One pair as the features of the TFDS data set."""


@dataclass(frozen=True)
class OfficialFolder:
    """The folder that a user unpacked the downloads into.

    Args:
        path: the folder.
        source: where the files come from, for messages.
    """

    path: Path
    source: str

    def file(self, name: str) -> Path:
        """A file that must be there.

        Raises:
            FileNotFoundError: naming the file and where to get it.
        """
        path = self.path / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} must be there. Received: no such file. {self.source}")
        return path

    def lines(self, name: str, expected: int | None = None) -> Iterator[tuple[str, str]]:
        """(place, line) of each line of a text file in UTF-8, without its end.

        Raises:
            FileNotFoundError: if there is no such file.
            DataError: if the number of lines turns out to be another than expected.
        """
        path = self.file(name)
        number = 0
        try:
            with path.open(encoding="utf-8-sig") as file:
                for number, line in enumerate(file, 1):
                    if expected is not None and number > expected:
                        raise self.wrong(path, f"must have {expected:,} lines", "more")
                    yield f"{path}, line {number}", line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, line {number + 1}: must be UTF-8. Received: {error}. {self.source}") from error
        if expected is not None and number != expected:
            raise self.wrong(path, f"must have {expected:,} lines", f"{number:,}")

    def wrong(self, place: Any, rule: str, received: Any) -> DataError:
        """An error that says where to get the file again."""
        return DataError(f"{place}: {rule}. Received: {received}. {self.source}")

    def picture(self, name: str) -> bytes:
        """The bytes of a picture.

        Some files that are called .jpg are PNG or GIF; TensorFlow decodes them all by their content.

        Raises:
            FileNotFoundError: if there is no such file.
            DataError: if it is no picture, or only the first part of one.
        """
        path = self.file(name)
        picture = path.read_bytes()
        for start, end in _END_MARKS.items():
            if picture.startswith(start):
                if end in picture[-_TAIL_BYTES:]:
                    return picture
                raise self.wrong(path, "must be a whole picture", f"{len(picture):,} bytes without an end mark")
        raise self.wrong(path, "must be a picture", f"{len(picture):,} bytes that begin with {picture[:8]!r}")


def check_count(found: int, expected: int | None, folder: OfficialFolder, what: str) -> None:
    """Refuses another number of kept pairs than the paper's: some official file must be another version.

    Raises:
        DataError: with both numbers.
    """
    if expected is not None and found != expected:
        raise folder.wrong(folder.path, f"{what} must be {expected:,}", f"{found:,}")
