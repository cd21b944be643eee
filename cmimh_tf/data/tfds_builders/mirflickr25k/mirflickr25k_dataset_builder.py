"""TFDS builder of MIR-Flickr25k: the pairs with a common tag and a label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from cmimh_tf.data.tfds_builders.base import (
    OfficialFolder,
    RetrievalBuilder,
    RetrievalConfig,
    check_count,
    make_configs,
)

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
    """Sizes of the official files, and the number of kept pairs."""

    pictures: int = 25_000
    common_tags: int = 1_386
    kept: int | None = 20_015


@dataclass(frozen=True, eq=False)
class MirflickrPairs:
    """The kept pairs, ordered by the number of the picture.

    Attributes:
        folder: the folder of the official files.
        vocabulary: the common tags, most frequent first.
        numbers: numbers of the pictures, from 1.
        tags: for each pair, the columns of its tags in the vocabulary.
        labels: uint8 [N, 24], in the order of `LABELS`.
    """

    folder: OfficialFolder
    vocabulary: list[str]
    numbers: list[int]
    tags: list[list[int]]
    labels: np.ndarray
    is_query: None = None  # There is no official query set.

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
    """Reads the official files except the pictures, which are read one by one later.

    A pair is kept if it has at least one of the 1,386 tags that occur in 20 pictures or more, and at least one of the
    24 labels. Both conditions together give the 20,015 pairs of the literature.

    Raises:
        FileNotFoundError: naming the missing file and its source.
        DataError: naming the file and the line with the error.
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
    """Reads doc/common_tags.txt: each line has a tag and its number of pictures."""
    vocabulary = []
    for place, line in folder.lines("mirflickr/doc/common_tags.txt", counts.common_tags):
        parts = line.split()
        if len(parts) != 2 or not parts[1].isdigit():
            raise folder.wrong(place, "must be a tag and its count", repr(line))
        vocabulary.append(parts[0])
    return vocabulary


def _read_labels(folder: OfficialFolder, counts: MirflickrCounts) -> np.ndarray:
    """uint8 [pictures, 24]. Each file lists the pictures of one label. The stricter `*_r1.txt` are not used."""
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


_SETTINGS = [
    RetrievalConfig("main", description="2,000 queries; 5,000 training pairs.", num_queries=2000, num_train=5000),
    RetrievalConfig(
        "queries_5_percent", description="5% queries; the rest is training set and database.", query_share=0.05
    ),
    RetrievalConfig(
        "recall_one",
        description="1,000 queries and 1,000 validation pairs for RecallOne@k; the rest is training set and database.",
        num_queries=1000,
        num_validation=1000,
    ),
]


class Builder(RetrievalBuilder):
    """Pictures, 1,386 tags and 24 labels of the 20,015 pairs that have one of each."""

    BUILDER_CONFIGS = make_configs(_SETTINGS)
    DEFAULT_CONFIG_NAME = "main"
    MANUAL_DOWNLOAD_INSTRUCTIONS = """\
From https://press.liacs.nl/mirflickr/mirdownload.html get mirflickr25k.zip (2.9 GB) and
mirflickr25k_annotations_v080.zip, and unpack both into this folder, so that it has mirflickr/im1.jpg,
mirflickr/meta/tags/tags1.txt, mirflickr/doc/common_tags.txt and mirflickr25k_annotations_v080/animals.txt.
"""

    def _info(self) -> tfds.core.DatasetInfo:
        counts = self.builder_config.counts or MirflickrCounts()
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "id": tfds.features.Text(),
                    "image": tfds.features.Image(encoding_format="jpeg"),
                    "text": tfds.features.Tensor(shape=(counts.common_tags,), dtype=np.uint8),
                    "caption": tfds.features.Text(),
                    "labels": tfds.features.Tensor(shape=(len(LABELS),), dtype=np.uint8),
                }
            ),
            homepage="https://press.liacs.nl/mirflickr/",
            license="Pictures under Creative Commons licences, one per picture: mirflickr/meta/license/license*.txt.",
            # The protocol defines the order of the splits.
            disable_shuffling=True,
        )

    def read_pairs(self, folder: Path) -> MirflickrPairs:
        return read_mirflickr(folder, self.builder_config.counts)
