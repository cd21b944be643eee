"""A reader of pairs as ExampleGen takes it: blocks of rows in, features of tf.Examples out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cmimh_tf.data.records import PairReader, RecordIndex


@dataclass(frozen=True)
class PairSource:
    """Pairs that Beam's workers read in blocks. Small and picklable: the reader holds paths, not data."""

    reader: PairReader

    @property
    def name(self) -> str:
        """A short name for folders and headings."""
        return self.reader.name

    def fingerprint(self) -> str:
        """Changes when the data does, so that cached results of older data are not used."""
        return self.reader.fingerprint()

    def index(self) -> RecordIndex:
        """Looks through the source once.

        Raises:
            DataError: if something is wrong that can be seen without reading every pair.
        """
        return self.reader.index()

    def read(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        """The pairs of one block, as features of a tf.Example: `image` or `image_bytes`, `text` or `caption`, and
        `labels` if there are some.

        Raises:
            DataError: naming the record that is wrong.
        """
        for record in self.reader.read(start, stop):
            features = record.features()
            # The vector is what is hashed; a picture beside it would only make the files larger.
            if "image" in features:
                features.pop("image_bytes", None)
            yield features
