"""TFDS builder of NUS-WIDE: the pairs with one of the ten most frequent concepts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
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
    "Get ImageList.zip, NUS_WID_Tags.zip, Groundtruth.zip, ConceptsList.zip and NUS_WID_Low_Level_Features.zip from "
    "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html (pictures: on request there) "
    "and unpack them into this folder."
)
_MOST_COUNT = np.iinfo(np.uint16).max


@dataclass(frozen=True)
class NuswideCounts:
    """Sizes of the official files, and the number of kept pairs."""

    pictures: int = 269_648
    tags: int = 1_000
    concepts: int = 81
    kept_concepts: int = 10
    visual_words: int = 500
    kept: int | None = 186_577


@dataclass(frozen=True, eq=False)
class NuswidePairs:
    """The kept pairs, in the order of Imagelist.txt.

    Attributes:
        folder: the folder of the official files.
        vocabulary: the 1,000 tags.
        concepts: the ten kept concepts, most frequent first.
        pictures: paths relative to Flickr/.
        tags: for each pair, the columns of its tags; some pairs have none of the 1,000 tags.
        labels: uint8 [N, 10].
        visual_words: uint16 [N, 500], or None if the pictures are read.
    """

    folder: OfficialFolder
    vocabulary: list[str]
    concepts: list[str]
    pictures: list[str]
    tags: list[np.ndarray]
    labels: np.ndarray
    visual_words: np.ndarray | None = None
    is_query: None = None  # There is no official query set.

    @property
    def ids(self) -> list[str]:
        return [picture.rsplit(".", 1)[0] for picture in self.pictures]

    def example(self, row: int) -> dict[str, Any]:
        text = np.zeros(len(self.vocabulary), np.uint8)
        text[self.tags[row]] = 1
        if self.visual_words is None:
            image: Any = self.folder.picture(f"Flickr/{self.pictures[row]}")
        else:
            image = self.visual_words[row].astype(np.float32)
        return {
            "image": image,
            "text": text,
            "caption": " ".join(self.vocabulary[column] for column in self.tags[row]),
            "labels": self.labels[row],
        }


def read_nuswide(path: Path, counts: NuswideCounts | None = None, *, visual_words: bool = False) -> NuswidePairs:
    """Reads the official files except the pictures, which are read one by one later.

    A pair is kept if it has one of the ten concepts with the most pictures. The 186,577 pairs include some without any
    of the 1,000 tags; their tag vector is 0. Papers that drop these pairs report a smaller number.

    Args:
        path: the folder of the official files.
        counts: expected sizes; None for the official ones.
        visual_words: use the 500-d bags of SIFT words (BoW_int.dat) instead of the pictures.

    Raises:
        FileNotFoundError: naming the missing file and its source.
        DataError: naming the file and the line with the error.
    """
    counts = counts or NuswideCounts()
    folder = OfficialFolder(path, SOURCE)
    # The paths in Imagelist.txt have backslashes.
    names = [line.strip().replace("\\", "/") for _, line in folder.lines("ImageList/Imagelist.txt", counts.pictures)]
    vocabulary = [line.strip() for _, line in folder.lines("NUS_WID_Tags/TagList1k.txt", counts.tags)]
    all_concepts = [line.strip() for _, line in folder.lines("ConceptsList/Concepts81.txt", counts.concepts)]
    of_concept = np.stack([_read_concept(folder, name, counts.pictures) for name in all_concepts], axis=1)
    # A stable sort: concepts with equally many pictures stay in the order of the list.
    kept_concepts = np.argsort(-of_concept.sum(axis=0, dtype=np.int64), kind="stable")[: counts.kept_concepts]
    labels = of_concept[:, kept_concepts]
    is_kept = labels.any(axis=1)
    check_count(int(is_kept.sum()), counts.kept, folder, "pairs with one of the most frequent concepts")
    tag_rows = _read_tags(folder, counts)
    tags = [columns for columns, keep in zip(tag_rows, is_kept.tolist(), strict=True) if keep]
    return NuswidePairs(
        folder,
        vocabulary,
        [all_concepts[column] for column in kept_concepts],
        [names[row] for row in np.flatnonzero(is_kept)],
        tags,
        labels[is_kept],
        _read_visual_words(folder, counts, is_kept) if visual_words else None,
    )


def _read_concept(folder: OfficialFolder, name: str, num_pictures: int) -> np.ndarray:
    """uint8 [pictures]: each line is 0 or 1."""
    values = np.zeros(num_pictures, np.uint8)
    for row, (place, line) in enumerate(folder.lines(f"Groundtruth/AllLabels/Labels_{name}.txt", num_pictures)):
        if line.strip() not in ("0", "1"):
            raise folder.wrong(place, "must be 0 or 1", repr(line))
        values[row] = line.strip() == "1"
    return values


def _read_tags(folder: OfficialFolder, counts: NuswideCounts) -> Iterator[np.ndarray]:
    """Yields the columns of the tags of each picture: each line has 1,000 values 0 or 1."""
    for place, line in folder.lines("NUS_WID_Tags/AllTags1k.txt", counts.pictures):
        values = np.frombuffer("".join(line.split()).encode(), np.uint8) - ord("0")
        if len(values) != counts.tags or values.max() > 1:
            raise folder.wrong(place, f"must be {counts.tags:,} values, 0 or 1", f"{len(values):,}: {line[:20]!r}")
        yield np.flatnonzero(values)


def _read_visual_words(folder: OfficialFolder, counts: NuswideCounts, is_kept: np.ndarray) -> np.ndarray:
    """uint16 [kept, 500]: the number of occurrences of each visual word."""
    words = np.zeros((int(is_kept.sum()), counts.visual_words), np.uint16)
    kept = 0
    for row, (place, line) in enumerate(folder.lines("Low_Level_Features/BoW_int.dat", counts.pictures)):
        if not is_kept[row]:
            continue
        try:
            values = np.array(line.split(), np.int64)
        except ValueError as error:
            raise folder.wrong(place, "must be whole numbers", repr(line[:40])) from error
        if len(values) != counts.visual_words or values.min() < 0 or values.max() > _MOST_COUNT:
            raise folder.wrong(place, f"must be {counts.visual_words} counts", f"{len(values)}: {line[:40]!r}")
        words[kept] = values
        kept += 1
    return words


@dataclasses.dataclass(eq=False)
class NuswideConfig(RetrievalConfig):
    """A setting, with pictures or with the 500-d bag of SIFT words."""

    visual_words: bool = False


def _with_training_pairs(name: str, number: int, **more: bool) -> NuswideConfig:
    kind = "; pictures as 500-d SIFT words" if more else ""
    return NuswideConfig(
        name, description=f"2,000 queries; {number:,} training pairs{kind}.", num_queries=2000, num_train=number, **more
    )


_SETTINGS = [
    _with_training_pairs("main", 5_000),
    _with_training_pairs("train_10000", 10_000),
    _with_training_pairs("train_20000", 20_000),
    _with_training_pairs("sift_20000", 20_000, visual_words=True),
    NuswideConfig(
        "queries_1_percent", description="1% queries; the rest is training set and database.", query_share=0.01
    ),
    NuswideConfig(
        "recall_one",
        description="1,000 queries and 1,000 validation pairs for RecallOne@k; the rest is training set and database.",
        num_queries=1000,
        num_validation=1000,
    ),
]


class Builder(RetrievalBuilder):
    """Pictures or SIFT words, 1,000 tags and 10 labels of the 186,577 pairs with one of the 10 largest concepts."""

    BUILDER_CONFIGS = make_configs(_SETTINGS)
    DEFAULT_CONFIG_NAME = "main"
    MANUAL_DOWNLOAD_INSTRUCTIONS = """\
From https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html get ImageList.zip,
NUS_WID_Tags.zip, Groundtruth.zip, ConceptsList.zip and, for the configuration sift_20000,
NUS_WID_Low_Level_Features.zip; the pictures (Flickr/) are available there on request. Unpack them into this folder, so
that it has ImageList/Imagelist.txt, NUS_WID_Tags/AllTags1k.txt, NUS_WID_Tags/TagList1k.txt,
Groundtruth/AllLabels/Labels_sky.txt, ConceptsList/Concepts81.txt, Low_Level_Features/BoW_int.dat and
Flickr/actor/0001_2124494179.jpg.
"""

    def _info(self) -> tfds.core.DatasetInfo:
        counts = self.builder_config.counts or NuswideCounts()
        if self.builder_config.visual_words:
            image = tfds.features.Tensor(shape=(counts.visual_words,), dtype=np.float32)
        else:
            image = tfds.features.Image(encoding_format="jpeg")
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "id": tfds.features.Text(),
                    "image": image,
                    "text": tfds.features.Tensor(shape=(counts.tags,), dtype=np.uint8),
                    "caption": tfds.features.Text(),
                    "labels": tfds.features.Tensor(shape=(counts.kept_concepts,), dtype=np.uint8),
                }
            ),
            homepage="https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html",
            license="For research only; pictures under their Flickr owners' terms, after NUS's agreement form.",
            # The protocol defines the order of the splits.
            disable_shuffling=True,
        )

    def read_pairs(self, folder: Path) -> NuswidePairs:
        config = self.builder_config
        return read_nuswide(folder, config.counts, visual_words=config.visual_words)
