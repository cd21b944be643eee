"""The rule of MIR-Flickr25k: pairs with a common tag and a label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.official_files import OfficialFolder, check_count

SOURCE = (
    "Get mirflickr25k.zip and mirflickr25k_annotations_v080.zip from https://press.liacs.nl/mirflickr/mirdownload.html"
    " and unpack them into this folder."
)
# fmt: off
LABELS = (
    "animals", "baby", "bird", "car", "clouds", "dog", "female", "flower",
    "food", "indoor", "lake", "male", "night", "people", "plant_life", "portrait",
    "river", "sea", "sky", "structures", "sunset", "transport", "tree", "water",
)
# fmt: on
_ANNOTATIONS = "mirflickr25k_annotations_v080"


@dataclass(frozen=True)
class MirflickrCounts:
    """What the official files hold, and how many pairs the rule keeps."""

    pictures: int = 25_000
    common_tags: int = 1_386
    kept: int | None = 20_015


@dataclass(frozen=True, eq=False)
class MirflickrPairs:
    """The kept pairs, by number of their picture.

    Attributes:
        folder: of the official files.
        vocabulary: the common tags, most frequent first.
        numbers: of the pictures, from 1.
        tags: for each kept pair the columns of its tags within the vocabulary.
        labels: uint8 [N, 24], in the order of `LABELS`.
    """

    folder: OfficialFolder
    vocabulary: list[str]
    numbers: list[int]
    tags: list[list[int]]
    labels: np.ndarray
    is_query: None = None

    @property
    def ids(self) -> list[str]:
        return [f"im{number}" for number in self.numbers]

    def example(self, row: int) -> dict[str, Any]:
        text = np.zeros(len(self.vocabulary), np.uint8)
        text[self.tags[row]] = 1
        return {
            "image": self.folder.picture(f"mirflickr/im{self.numbers[row]}.jpg"),
            "text": text,
            "caption": " ".join(self.vocabulary[column] for column in self.tags[row]),
            "labels": self.labels[row],
        }


def read_mirflickr(path: Path, counts: MirflickrCounts | None = None) -> MirflickrPairs:
    """Applies the rule to the official files; pictures are only read later, one by one.

    Kept are pictures with at least one of the 1,386 tags that 20 pictures or more have, and at least one of the 24
    labels. Both conditions are needed for the 20,015 of the literature.

    Raises:
        FileNotFoundError: naming the file that is missing, with where to get it.
        DataError: naming the file and the line that is wrong.
    """
    counts = counts or MirflickrCounts()
    folder = OfficialFolder(path, SOURCE)
    vocabulary = _read_vocabulary(folder, counts)
    column_of = {tag: column for column, tag in enumerate(vocabulary)}
    labels = _read_labels(folder, counts)
    numbers, tags = [], []
    for number in range(1, counts.pictures + 1):
        lines = folder.lines(f"mirflickr/meta/tags/tags{number}.txt")
        columns = sorted({column_of[line.strip()] for _, line in lines if line.strip() in column_of})
        if columns and labels[number - 1].any():
            numbers.append(number)
            tags.append(columns)
    check_count(len(numbers), counts.kept, folder, "pairs with a common tag and a label")
    return MirflickrPairs(folder, vocabulary, numbers, tags, labels[np.array(numbers, np.int64) - 1])


def _read_vocabulary(folder: OfficialFolder, counts: MirflickrCounts) -> list[str]:
    """The tags of doc/common_tags.txt: a tag and its number of pictures on each line."""
    vocabulary = []
    for place, line in folder.lines("mirflickr/doc/common_tags.txt", counts.common_tags):
        parts = line.split()
        if len(parts) != 2 or not parts[1].isdigit():
            raise folder.wrong(place, "must be a tag and its count", repr(line))
        vocabulary.append(parts[0])
    return vocabulary


def _read_labels(folder: OfficialFolder, counts: MirflickrCounts) -> np.ndarray:
    """uint8 [pictures, 24]. Each file lists the pictures of one label; the stricter `*_r1.txt` are not used."""
    labels = np.zeros((counts.pictures, len(LABELS)), np.uint8)
    for column, name in enumerate(LABELS):
        for place, line in folder.lines(f"{_ANNOTATIONS}/{name}.txt"):
            if not line.strip():
                continue
            if not line.strip().isdigit() or not 1 <= int(line) <= counts.pictures:
                raise folder.wrong(place, f"must be the number of a picture, 1..{counts.pictures}", repr(line))
            labels[int(line) - 1, column] = 1
        if not labels[:, column].any():
            raise folder.wrong(folder.path / _ANNOTATIONS / f"{name}.txt", "must name at least one picture", "none")
    return labels
