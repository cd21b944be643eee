"""The rule of NUS-WIDE: pairs with one of the ten most frequent concepts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.official_files import OfficialFolder, check_count

SOURCE = (
    "Get ImageList.zip, NUS_WID_Tags.zip, Groundtruth.zip, ConceptsList.zip and NUS_WID_Low_Level_Features.zip from "
    "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html (pictures: on request there) "
    "and unpack them into this folder."
)
_MOST_COUNT = np.iinfo(np.uint16).max


@dataclass(frozen=True)
class NuswideCounts:
    """What the official files hold, and how many pairs the rule keeps."""

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
        folder: of the official files.
        vocabulary: the 1,000 tags.
        concepts: the ten kept ones, most frequent first.
        pictures: paths below Flickr/.
        tags: for each kept pair the columns of its tags; some have none of the 1,000.
        labels: uint8 [N, 10].
        visual_words: uint16 [N, 500], or None: the pictures themselves are read.
    """

    folder: OfficialFolder
    vocabulary: list[str]
    concepts: list[str]
    pictures: list[str]
    tags: list[np.ndarray]
    labels: np.ndarray
    visual_words: np.ndarray | None = None
    is_query: None = None

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
    """Applies the rule to the official files.

    Kept are the pictures of the ten concepts with the most pictures. 186,577 includes pairs without any of the 1,000
    tags, whose tag vector is 0; without them the literature counts fewer.

    Args:
        path: folder of the official files.
        counts: the official ones unless given.
        visual_words: take the 500-d bag of SIFT words (BoW_int.dat) in place of the pictures.

    Raises:
        FileNotFoundError: naming the file that is missing, with where to get it.
        DataError: naming the file and the line that is wrong.
    """
    counts = counts or NuswideCounts()
    folder = OfficialFolder(path, SOURCE)
    # In Imagelist.txt a path has a backslash.
    names = [line.strip().replace("\\", "/") for _, line in folder.lines("ImageList/Imagelist.txt", counts.pictures)]
    vocabulary = [line.strip() for _, line in folder.lines("NUS_WID_Tags/TagList1k.txt", counts.tags)]
    all_concepts = [line.strip() for _, line in folder.lines("ConceptsList/Concepts81.txt", counts.concepts)]
    of_concept = np.stack([_read_concept(folder, name, counts.pictures) for name in all_concepts], axis=1)
    # A stable sort: of two concepts with as many pictures, the one that the list has first.
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
    """uint8 [pictures]: one 0 or 1 a line."""
    values = np.zeros(num_pictures, np.uint8)
    for row, (place, line) in enumerate(folder.lines(f"Groundtruth/AllLabels/Labels_{name}.txt", num_pictures)):
        if line.strip() not in ("0", "1"):
            raise folder.wrong(place, "must be 0 or 1", repr(line))
        values[row] = line.strip() == "1"
    return values


def _read_tags(folder: OfficialFolder, counts: NuswideCounts) -> Iterator[np.ndarray]:
    """The columns of the tags of each picture: 1,000 values 0 or 1 a line."""
    for place, line in folder.lines("NUS_WID_Tags/AllTags1k.txt", counts.pictures):
        values = np.frombuffer("".join(line.split()).encode(), np.uint8) - ord("0")
        if len(values) != counts.tags or values.max() > 1:
            raise folder.wrong(place, f"must be {counts.tags:,} values, 0 or 1", f"{len(values):,}: {line[:20]!r}")
        yield np.flatnonzero(values)


def _read_visual_words(folder: OfficialFolder, counts: NuswideCounts, is_kept: np.ndarray) -> np.ndarray:
    """uint16 [kept, 500]: how often each visual word occurs."""
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
