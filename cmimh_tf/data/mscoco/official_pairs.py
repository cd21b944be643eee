"""The rule of MS-COCO 2017: pictures with an object class, one caption each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.official_files import OfficialFolder, check_count

SOURCE = (
    "Get annotations_trainval2017.zip, train2017.zip and val2017.zip from https://cocodataset.org/#download and unpack "
    "them into this folder."
)


@dataclass(frozen=True)
class MscocoCounts:
    """What the official files hold, and how many pairs the rule keeps."""

    train_pictures: int = 118_287
    val_pictures: int = 5_000
    classes: int = 80
    kept_train: int | None = 117_266
    kept_val: int | None = 4_952


@dataclass(frozen=True, eq=False)
class MscocoPairs:
    """The kept pairs: those of train2017 by id, then those of val2017 by id.

    Attributes:
        folder: of the official files.
        pictures: paths such as val2017/000000000139.jpg.
        captions: one of each picture's, chosen by the seed.
        labels: uint8 [N, 80], classes in the order of their ids.
        classes: 80 names.
        ids: of the pictures.
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
    """Applies the rule to the official files; pictures are only read later, one by one.

    Of a picture's captions, sorted by id, the one at `default_rng([seed, picture id]).integers(number)` is taken, so
    that it does not depend on other pictures. Pictures without an object are dropped.

    Raises:
        FileNotFoundError: naming the file that is missing, with where to get it.
        DataError: naming the file and the entry that is wrong.
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
