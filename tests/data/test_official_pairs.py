"""The rules of the published data sets, and the message for each wrong official file."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import cmimh_tf.data.mirflickr25k.official_pairs as mirflickr
import cmimh_tf.data.mscoco.official_pairs as mscoco
import cmimh_tf.data.nuswide.official_pairs as nuswide

MIRFLICKR_COUNTS = mirflickr.MirflickrCounts(pictures=12, common_tags=5, kept=9)
NUSWIDE_COUNTS = nuswide.NuswideCounts(pictures=14, tags=6, concepts=5, kept_concepts=3, visual_words=8, kept=12)
MSCOCO_COUNTS = mscoco.MscocoCounts(train_pictures=9, val_pictures=6, classes=3, kept_train=8, kept_val=5)

READERS = {
    "mirflickr25k": lambda path: mirflickr.read_mirflickr(path, MIRFLICKR_COUNTS),
    "nuswide": lambda path: nuswide.read_nuswide(path, NUSWIDE_COUNTS, visual_words=True),
    "mscoco": lambda path: mscoco.read_mscoco(path, 0, MSCOCO_COUNTS),
}


def dummy_data(name):
    return Path(mirflickr.__file__).parents[1] / name / "dummy_data"


@pytest.fixture
def copy(tmp_path):
    def copy_of(name):
        return Path(shutil.copytree(dummy_data(name), tmp_path / name))

    return copy_of


def test_mirflickr_keeps_pictures_with_a_common_tag_and_a_label():
    pairs = READERS["mirflickr25k"](dummy_data("mirflickr25k"))
    # 4 has no tag, 7 only a rare one, 9 no label (and one in the unused *_r1.txt).
    assert pairs.ids == [f"im{number}" for number in (1, 2, 3, 5, 6, 8, 10, 11, 12)]
    first = pairs.example(0)
    assert first["caption"] == "sky nikon"
    assert first["text"].tolist() == [0, 1, 1, 0, 0]
    # Picture n has label c where n + c is a multiple of 6.
    assert np.flatnonzero(first["labels"]).tolist() == [5, 11, 17, 23]
    assert first["image"] == (dummy_data("mirflickr25k") / "mirflickr" / "im1.jpg").read_bytes()


def test_nuswide_keeps_the_largest_concepts_and_pairs_without_tags():
    pairs = READERS["nuswide"](dummy_data("nuswide"))
    assert pairs.concepts == ["sky", "person", "water"]
    assert len(pairs.ids) == 12
    assert pairs.ids[:2] == ["actor/0000_1000", "zebra/0001_1001"]
    np.testing.assert_array_equal(
        pairs.labels[[0, 2, 4, 6, 9]], [[1, 0, 0], [1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 1]]
    )
    assert not pairs.example(3)["text"].any()
    words = np.loadtxt(dummy_data("nuswide") / "Low_Level_Features" / "BoW_int.dat", max_rows=12)
    np.testing.assert_array_equal([pairs.example(row)["image"] for row in range(12)], words)


def test_nuswide_pictures_are_found_by_the_list():
    pairs = nuswide.read_nuswide(dummy_data("nuswide"), NUSWIDE_COUNTS)
    expected = (dummy_data("nuswide") / "Flickr" / "zebra" / "0001_1001.jpg").read_bytes()
    assert pairs.example(1)["image"] == expected


def test_mscoco_takes_one_caption_by_the_seed():
    pairs = READERS["mscoco"](dummy_data("mscoco"))
    assert pairs.ids == ["9", "18", "36", "45", "54", "63", "72", "81", "100", "101", "102", "104", "105"]
    assert pairs.is_query.sum() == 5
    assert pairs.classes == ["person", "car", "dog"]
    for caption, item in zip(pairs.captions, pairs.ids, strict=True):
        assert caption.startswith(f"Picture {item}, caption ")
    captions = [mscoco.read_mscoco(dummy_data("mscoco"), seed, MSCOCO_COUNTS).captions for seed in (0, 1)]
    assert captions[0] == pairs.captions != captions[1]


@pytest.mark.parametrize(
    ("name", "file", "site"),
    [
        ("mirflickr25k", "mirflickr/doc/common_tags.txt", "press.liacs.nl"),
        ("mirflickr25k", "mirflickr/meta/tags/tags5.txt", "press.liacs.nl"),
        ("mirflickr25k", "mirflickr25k_annotations_v080/sky.txt", "press.liacs.nl"),
        ("nuswide", "ImageList/Imagelist.txt", "lms.comp.nus.edu.sg"),
        ("nuswide", "Groundtruth/AllLabels/Labels_zebra.txt", "lms.comp.nus.edu.sg"),
        ("nuswide", "Low_Level_Features/BoW_int.dat", "lms.comp.nus.edu.sg"),
        ("mscoco", "annotations/instances_val2017.json", "cocodataset.org"),
    ],
)
def test_missing_file_is_named_with_where_to_get_it(copy, name, file, site):
    folder = copy(name)
    (folder / file).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{file} must be there.*{site}"):
        READERS[name](folder)


def cut(text):
    return text[: len(text) // 2]


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        ("mirflickr25k", "mirflickr/doc/common_tags.txt", cut, r"common_tags.txt.*(lines|count).*press.liacs.nl"),
        ("mirflickr25k", "mirflickr/doc/common_tags.txt", lambda text: text + "x 20\n", "must have 5 lines.*more"),
        (
            "mirflickr25k",
            "mirflickr25k_annotations_v080/sky.txt",
            lambda text: "13\n" + text,
            r"sky.txt, line 1: must be the number of a picture, 1..12. Received: '13'",
        ),
        ("mirflickr25k", "mirflickr25k_annotations_v080/sky.txt", lambda _: "", "sky.txt: must name at least one"),
        (
            "mirflickr25k",
            "mirflickr/meta/tags/tags1.txt",
            lambda _: "rare\n",
            "pairs with a common tag and a label must be 9. Received: 8",
        ),
        ("nuswide", "ImageList/Imagelist.txt", cut, "Imagelist.txt: must have 14 lines. Received: 7"),
        (
            "nuswide",
            "Groundtruth/AllLabels/Labels_sky.txt",
            lambda text: text.replace("0", "-1130179", 1),
            r"Labels_sky.txt, line 7: must be 0 or 1. Received: '-1130179'",
        ),
        ("nuswide", "NUS_WID_Tags/AllTags1k.txt", cut, r"AllTags1k.txt.*must"),
        ("nuswide", "NUS_WID_Tags/AllTags1k.txt", lambda text: text + text[:14], r"AllTags1k.txt: must have 14 lines"),
        (
            "nuswide",
            "Low_Level_Features/BoW_int.dat",
            lambda text: "1 2 3\n" + text.split("\n", 1)[1],
            r"BoW_int.dat, line 1: must be 8 counts. Received: 3",
        ),
        ("mscoco", "annotations/captions_train2017.json", cut, "captions_train2017.json: must be whole JSON"),
        (
            "mscoco",
            "annotations/captions_train2017.json",
            lambda text: (dummy_data("mscoco") / "annotations/captions_val2017.json").read_text(),
            "captions_train2017.json: must name 9 pictures. Received: 6",
        ),
        (
            "mscoco",
            "annotations/instances_val2017.json",
            lambda text: text.replace('"category_id": 1,', '"category_id": 91,', 1),
            r"instances_val2017.json, annotations\[\d+\]: must have a picture and a category",
        ),
        (
            "mscoco",
            "annotations/instances_val2017.json",
            lambda text: json.dumps({**json.loads(text), "annotations": {}}),
            "must have a list `annotations`",
        ),
    ],
)
def test_wrong_file_is_named(copy, name, file, change, message):
    folder = copy(name)
    path = folder / file
    path.write_bytes(change(path.read_bytes().decode()).encode())
    with pytest.raises(ValueError, match=message):
        READERS[name](folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda picture: picture[:100], "im1.jpg: must be a whole picture. Received: 100 bytes.*press.liacs.nl"),
        (lambda picture: b"<html>", "im1.jpg: must be a picture. Received: 6 bytes that begin with b'<html>'"),
        (lambda picture: b"", "im1.jpg: must be a picture. Received: 0 bytes"),
    ],
)
def test_truncated_picture_is_named(copy, content, message):
    folder = copy("mirflickr25k")
    path = folder / "mirflickr" / "im1.jpg"
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        READERS["mirflickr25k"](folder).example(0)
