"""Checks a source of pairs: what it contains, what is wrong with it, and whether training could start."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.pictures import opened_picture
from cmimh_tf.data.records import PairReader, PairRecord, RecordIndex
from cmimh_tf.data.splits import make_splits
from cmimh_tf.progress import track

# More findings of a kind than these are only counted.
MAX_NAMED = 20


@dataclass
class Duplicates:
    """Records with equal contents.

    Attributes:
        count: number of records whose content occurred before.
        examples: the first ones, such as "b.csv, line 7 repeats b.csv, line 3".
    """

    count: int = 0
    examples: list[str] = field(default_factory=list)
    _seen: dict[bytes, str] = field(default_factory=dict, repr=False)

    def add(self, content: bytes, place: str) -> None:
        digest = hashlib.blake2b(content, digest_size=16).digest()
        first = self._seen.setdefault(digest, place)
        if first is not place:
            self.count += 1
            if len(self.examples) < MAX_NAMED:
                self.examples.append(f"{place} repeats {first}")

    @property
    def num_distinct(self) -> int:
        return len(self._seen)


@dataclass
class Modality:
    """Statistics of the pictures or the texts.

    Attributes:
        raw: number of records with an encoded picture, or a caption.
        vectors: number of records with a vector.
        widths: number of vectors of each width.
        formats: number of pictures of each format.
        sizes: (width, height) of the smallest and the largest picture, or the least and the largest number of words.
        duplicates: equal pictures, captions or vectors.
    """

    raw: int = 0
    vectors: int = 0
    widths: Counter[int] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    sizes: list[Any] = field(default_factory=list)
    duplicates: Duplicates = field(default_factory=Duplicates)

    def add_size(self, size: Any) -> None:
        area = np.prod(size)
        if not self.sizes:
            self.sizes = [size, size]
        elif area < np.prod(self.sizes[0]):
            self.sizes[0] = size
        elif area > np.prod(self.sizes[1]):
            self.sizes[1] = size


@dataclass
class SourceCheck:
    """The findings of `check_source`.

    Attributes:
        name: name of the source.
        num_records: number of records, including those with errors.
        image: statistics of the pictures.
        text: statistics of the texts.
        num_labelled: number of records with at least one label.
        label_total: number of labels of all records together.
        num_classes: number of columns of the labels.
        splits: sizes of train, database and query, or None if the data cannot be split.
        num_problems: number of errors.
        problems: the first errors, each naming its record.
        samples: some records without errors, for the contact sheet.
        classes: names of the labels' columns, or None.
    """

    name: str
    num_records: int = 0
    image: Modality = field(default_factory=Modality)
    text: Modality = field(default_factory=Modality)
    num_labelled: int = 0
    label_total: int = 0
    num_classes: int = 0
    splits: dict[str, int] | None = None
    num_problems: int = 0
    problems: list[str] = field(default_factory=list)
    samples: list[PairRecord] = field(default_factory=list, repr=False)
    classes: list[str] | None = None
    _reported: set[str] = field(default_factory=set, repr=False)

    @property
    def can_train(self) -> bool:
        return not self.num_problems and self.splits is not None

    def add_problem(self, problem: Any) -> None:
        # A problem that the survey found occurs again when the record is read.
        if str(problem) in self._reported:
            return
        self._reported.add(str(problem))
        self.num_problems += 1
        if len(self.problems) < MAX_NAMED:
            self.problems.append(str(problem))

    def add_record(self, record: PairRecord) -> None:
        """Counts a record.

        Raises:
            DataError: if its picture cannot be opened; the record is then not counted.
        """
        if record.image is not None:
            _add_vector(self.image, record.image, record.place)
        elif record.image_bytes is not None:
            _add_picture(self.image, record.image_bytes, record.place)
        if record.text is not None:
            _add_vector(self.text, record.text, record.place)
        elif record.caption is not None:
            self.text.raw += 1
            self.text.add_size(len(record.caption.split()))
            self.text.duplicates.add(record.caption.encode(), record.place)
        if record.labels is not None:
            self.num_classes = len(record.labels)
            self.num_labelled += bool(record.labels.any())
            self.label_total += int(record.labels.sum())


def check_source(reader: PairReader, seed: int = 0, num_samples: int = 12) -> SourceCheck:
    """Reads every record once.

    Args:
        reader: the source.
        seed: seed of the split and of the choice of samples.
        num_samples: number of records for the contact sheet.

    Raises:
        DataError: if nothing can be read at all.
    """
    index = reader.survey()
    found = SourceCheck(reader.name, classes=index.classes)
    for problem in index.problems:
        found.add_problem(problem)
    is_used = index.is_used()
    generator = np.random.default_rng(seed)
    good = 0
    for start, stop in track(index.blocks, len(index.blocks), "checking", "blocks"):
        for row, record in enumerate(reader.scan(start, stop), start):
            if not is_used[row]:
                continue
            found.num_records += 1
            try:
                if isinstance(record, DataError):
                    raise record
                found.add_record(record)
            except DataError as problem:
                found.add_problem(problem)
                continue
            good += 1
            # Reservoir sampling: every record has the same chance.
            if len(found.samples) < num_samples:
                found.samples.append(record)
            elif (place := generator.integers(good)) < num_samples:
                found.samples[place] = record
    _check_whole(found, good)
    _check_splits(found, index, seed)
    return found


def _add_vector(modality: Modality, vector: np.ndarray, place: str) -> None:
    modality.vectors += 1
    modality.widths[len(vector)] += 1
    modality.duplicates.add(vector.tobytes(), place)


def _add_picture(modality: Modality, picture: bytes, place: str) -> None:
    with opened_picture(picture, place) as opened:
        picture_format, size = opened.format or "unknown", opened.size
    modality.raw += 1
    modality.formats[picture_format] += 1
    modality.add_size(size)
    modality.duplicates.add(picture, place)


def _check_whole(found: SourceCheck, good: int) -> None:
    """Checks that need all records."""
    for name, modality in (("image", found.image), ("text", found.text)):
        if modality.raw and modality.vectors:
            found.add_problem(
                f"{found.name}: `{name}` must be a vector in all records or in none. Received: {modality.vectors:,} "
                f"vectors and {modality.raw:,} others."
            )
        if len(modality.widths) > 1:
            widths = ", ".join(f"{count:,} of width {width}" for width, count in modality.widths.most_common(4))
            found.add_problem(f"{found.name}: `{name}` must have one width. Received: {widths}.")
        if good > 1 and modality.duplicates.num_distinct == 1:
            found.add_problem(f"{found.name}: `{name}` must vary. Received: {good:,} records that are all equal.")


def _check_splits(found: SourceCheck, index: RecordIndex, seed: int) -> None:
    splits = index.splits
    if splits is None:
        try:
            splits = make_splits(len(index.ids), seed, is_query=index.is_query)
        except ValueError as error:
            found.add_problem(f"{found.name}: the data cannot be split, or a split would be empty: {error}")
            return
    found.splits = {name: len(getattr(splits, name)) for name in ("train", "database", "query")}
