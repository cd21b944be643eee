"""TFDS builder of MS-COCO 2017: pictures with an object class, and one caption each."""

from __future__ import annotations

import json
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
    "Get annotations_trainval2017.zip, train2017.zip and val2017.zip from https://cocodataset.org/#download and unpack "
    "them into this folder."
)


@dataclass(frozen=True)
class MscocoCounts:
    """Sizes of the official files, and the number of kept pairs."""

    train_pictures: int = 118_287
    val_pictures: int = 5_000
    classes: int = 80
    kept_train: int | None = 117_266
    kept_val: int | None = 4_952


@dataclass(frozen=True, eq=False)
class MscocoPairs:
    """The kept pairs: those of train2017 by id, then those of val2017 by id.

    Attributes:
        folder: the folder of the official files.
        pictures: paths such as val2017/000000000139.jpg.
        captions: one caption per picture, chosen by the seed.
        labels: uint8 [N, 80], classes in the order of their ids.
        classes: 80 names.
        ids: ids of the pictures.
        is_query: bool [N], True for val2017.
    """

    folder: OfficialFolder
    pictures: list[str]
    captions: list[str]
    labels: np.ndarray
    classes: list[str]
    ids: list[str]
    is_query: np.ndarray | None

    def example(self, row: int) -> dict[str, Any]:
        picture = self.folder.picture(self.pictures[row])
        return {"image": picture, "caption": self.captions[row], "labels": self.labels[row]}


def read_mscoco(path: Path, seed: int, counts: MscocoCounts | None = None) -> MscocoPairs:
    """Reads the official files except the pictures, which are read one by one later.

    The captions of a picture are sorted by id, and the one at `default_rng([seed, picture id]).integers(number)` is
    used, so that the choice does not depend on other pictures. Pictures without an object are dropped.

    Raises:
        FileNotFoundError: naming the missing file and its source.
        DataError: naming the file and the entry with the error.
    """
    counts = counts or MscocoCounts()
    folder = OfficialFolder(path, SOURCE)
    parts = []
    for split, pictures, kept in (
        ("train2017", counts.train_pictures, counts.kept_train),
        ("val2017", counts.val_pictures, counts.kept_val),
    ):
        part = _read_split(folder, split, pictures, counts.classes, seed)
        check_count(len(part.ids), kept, folder, f"pairs of {split} with an object class")
        parts.append(part)
    train, val = parts
    return MscocoPairs(
        folder,
        train.pictures + val.pictures,
        train.captions + val.captions,
        np.concatenate([train.labels, val.labels]),
        train.classes,
        train.ids + val.ids,
        np.arange(len(train.ids) + len(val.ids)) >= len(train.ids),
    )


def _read_split(folder: OfficialFolder, split: str, num_pictures: int, num_classes: int, seed: int) -> MscocoPairs:
    captions_path = folder.file(f"annotations/captions_{split}.json")
    instances_path = folder.file(f"annotations/instances_{split}.json")
    captions_file = _read_json(folder, captions_path, ("images", "annotations"))
    instances_file = _read_json(folder, instances_path, ("images", "annotations", "categories"))
    names = {int(image["id"]): str(image["file_name"]) for image in captions_file["images"]}
    if len(names) != num_pictures:
        raise folder.wrong(captions_path, f"must name {num_pictures:,} pictures", f"{len(names):,}")
    categories = sorted(instances_file["categories"], key=lambda category: category["id"])
    if len(categories) != num_classes:
        raise folder.wrong(instances_path, f"must have {num_classes} categories", len(categories))
    column_of = {category["id"]: column for column, category in enumerate(categories)}
    texts: dict[int, list[tuple[int, str]]] = {}
    for entry, annotation in enumerate(captions_file["annotations"]):
        if annotation["image_id"] not in names:
            place = f"{captions_path}, annotations[{entry}]"
            raise folder.wrong(place, "must have the id of one of its pictures", annotation["image_id"])
        texts.setdefault(annotation["image_id"], []).append((annotation["id"], annotation["caption"].strip()))
    columns: dict[int, set[int]] = {}
    for entry, annotation in enumerate(instances_file["annotations"]):
        if annotation["image_id"] not in names or annotation["category_id"] not in column_of:
            place = f"{instances_path}, annotations[{entry}]"
            received = f"picture {annotation['image_id']}, category {annotation['category_id']}"
            raise folder.wrong(place, "must have a picture and a category of the file", received)
        columns.setdefault(annotation["image_id"], set()).add(column_of[annotation["category_id"]])
    kept = sorted(number for number in names if number in columns and number in texts)
    labels = np.zeros((len(kept), num_classes), np.uint8)
    for row, number in enumerate(kept):
        labels[row, sorted(columns[number])] = 1
    return MscocoPairs(
        folder,
        [f"{split}/{names[number]}" for number in kept],
        [_choose(texts[number], seed, number) for number in kept],
        labels,
        [str(category["name"]) for category in categories],
        [str(number) for number in kept],
        None,
    )


def _choose(texts: list[tuple[int, str]], seed: int, number: int) -> str:
    return sorted(texts)[np.random.default_rng([seed, number]).integers(len(texts))][1]


def _read_json(folder: OfficialFolder, path: Path, keys: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise folder.wrong(path, "must be whole JSON", error) from error
    for key in keys:
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise folder.wrong(path, f"must have a list `{key}`", list(content)[:8])
    return content


_SETTINGS = [
    RetrievalConfig(
        "main", description="Queries are the validation set; 5,000 training pairs of the database.", num_train=5000
    ),
    RetrievalConfig(
        "recall_one",
        description="1,000 queries and 1,000 validation pairs of the official validation set for RecallOne@k.",
        num_queries=1000,
        num_validation=1000,
    ),
]


class Builder(RetrievalBuilder):
    """Pictures, one caption each and 80 labels: 117,266 pairs of train2017 and 4,952 of val2017."""

    BUILDER_CONFIGS = make_configs(_SETTINGS)
    DEFAULT_CONFIG_NAME = "main"
    MANUAL_DOWNLOAD_INSTRUCTIONS = """\
From https://cocodataset.org/#download get train2017.zip (18 GB), val2017.zip (1 GB) and annotations_trainval2017.zip,
and unpack them into this folder, so that it has train2017/, val2017/, annotations/captions_train2017.json,
annotations/instances_train2017.json and the same two for val2017.
"""

    def _info(self) -> tfds.core.DatasetInfo:
        counts = self.builder_config.counts or MscocoCounts()
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "id": tfds.features.Text(),
                    "image": tfds.features.Image(encoding_format="jpeg"),
                    "caption": tfds.features.Text(),
                    "labels": tfds.features.Tensor(shape=(counts.classes,), dtype=np.uint8),
                }
            ),
            homepage="https://cocodataset.org/",
            license="Annotations CC BY 4.0; pictures under their Flickr owners' terms.",
            # The protocol defines the order of the splits.
            disable_shuffling=True,
        )

    def read_pairs(self, folder: Path) -> MscocoPairs:
        return read_mscoco(folder, self.builder_config.seed, self.builder_config.counts)
