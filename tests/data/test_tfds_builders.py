"""The TFDS builders: TFDS's own test on dummy files in the official formats, the kept pairs, and errors in files."""

import json
import shutil
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core import shuffle

from cmimh_tf.data.tfds_builders.base import RetrievalConfig, ordered_keys, split_rows
from cmimh_tf.data.tfds_builders.mirflickr25k import mirflickr25k_dataset_builder as mirflickr25k
from cmimh_tf.data.tfds_builders.mscoco import mscoco_dataset_builder as mscoco
from cmimh_tf.data.tfds_builders.nuswide import nuswide_dataset_builder as nuswide

pytestmark = pytest.mark.filterwarnings("ignore:grpcio < .* does not support Post-Quantum:FutureWarning")

MIRFLICKR_COUNTS = mirflickr25k.MirflickrCounts(pictures=12, common_tags=5, kept=9)
NUSWIDE_COUNTS = nuswide.NuswideCounts(pictures=14, tags=6, concepts=5, kept_concepts=3, visual_words=8, kept=12)
MSCOCO_COUNTS = mscoco.MscocoCounts(train_pictures=9, val_pictures=6, classes=3, kept_train=8, kept_val=5)


class Mirflickr25kTest(tfds.testing.DatasetBuilderTestCase):
    """9 of 12 pictures have a common tag and a label."""

    DATASET_CLASS = mirflickr25k.Builder
    BUILDER_CONFIG_NAMES_TO_TEST: ClassVar = [
        RetrievalConfig("dummy", num_queries=2, num_train=4, counts=MIRFLICKR_COUNTS)
    ]
    SPLITS: ClassVar = {"train": 4, "database": 7, "query": 2}
    OVERLAPPING_SPLITS: ClassVar = ["train"]


class Mirflickr25kRecallOneTest(tfds.testing.DatasetBuilderTestCase):
    """Validation pairs are neither query nor database, and the whole database is trained on."""

    DATASET_CLASS = mirflickr25k.Builder
    BUILDER_CONFIG_NAMES_TO_TEST: ClassVar = [
        RetrievalConfig("dummy", num_queries=2, num_validation=3, counts=MIRFLICKR_COUNTS)
    ]
    SPLITS: ClassVar = {"train": 4, "database": 4, "query": 2, "validation": 3}
    OVERLAPPING_SPLITS: ClassVar = ["train"]


class NuswideTest(tfds.testing.DatasetBuilderTestCase):
    """12 of 14 pictures have one of the 3 largest concepts; with pictures and with visual words."""

    DATASET_CLASS = nuswide.Builder
    BUILDER_CONFIG_NAMES_TO_TEST: ClassVar = [
        nuswide.NuswideConfig("dummy", num_queries=3, num_train=5, counts=NUSWIDE_COUNTS),
        nuswide.NuswideConfig("dummy_sift", num_queries=3, num_train=5, counts=NUSWIDE_COUNTS, visual_words=True),
    ]
    SPLITS: ClassVar = {"train": 5, "database": 9, "query": 3}
    OVERLAPPING_SPLITS: ClassVar = ["train"]


class MscocoTest(tfds.testing.DatasetBuilderTestCase):
    """8 of 9 training and 5 of 6 validation pictures have an object."""

    DATASET_CLASS = mscoco.Builder
    BUILDER_CONFIG_NAMES_TO_TEST: ClassVar = [RetrievalConfig("dummy", num_train=4, counts=MSCOCO_COUNTS)]
    SPLITS: ClassVar = {"train": 4, "database": 8, "query": 5}
    OVERLAPPING_SPLITS: ClassVar = ["train"]


def test_keys_keep_the_order_and_spread_over_the_buckets_of_tfds():
    keys = list(ordered_keys(5000))
    assert keys == sorted(set(keys))
    buckets = [shuffle.get_bucket_number(key, shuffle.BUCKETS_NUMBER) for key in keys]
    assert buckets == sorted(buckets)
    assert np.bincount(buckets).max() <= 6


def test_beam_writes_the_same_shards(tmp_path):
    from apache_beam.options.pipeline_options import PipelineOptions

    written = []
    for name, options in (("one", None), ("beam", PipelineOptions(["--runner=DirectRunner"]))):
        config = RetrievalConfig("dummy", num_queries=2, num_train=4, counts=MIRFLICKR_COUNTS)
        builder = mirflickr25k.Builder(config=config, data_dir=str(tmp_path / name))
        dummy_data = Path(mirflickr25k.__file__).parent / "dummy_data"
        download = tfds.download.DownloadConfig(manual_dir=dummy_data, beam_options=options)
        builder.download_and_prepare(download_config=download)
        shards = sorted(Path(builder.data_dir).glob("*.tfrecord-*"))
        written.append({path.name: path.read_bytes() for path in shards})
    assert len(written[0]) == 3
    assert written[0] == written[1]


def settings(builder):
    return {name: config for name, config in builder.builder_configs.items() if not name.endswith(("seed1", "seed2"))}


@pytest.mark.parametrize(
    ("builder", "setting", "num_pairs", "expected"),
    [
        (mirflickr25k.Builder, "main", 20_015, {"query": 2_000, "database": 18_015, "train": 5_000}),
        (mirflickr25k.Builder, "queries_5_percent", 20_015, {"query": 1_001, "database": 19_014, "train": 19_014}),
        (
            mirflickr25k.Builder,
            "recall_one",
            20_015,
            {"query": 1_000, "validation": 1_000, "database": 18_015, "train": 18_015},
        ),
        (nuswide.Builder, "main", 186_577, {"query": 2_000, "database": 184_577, "train": 5_000}),
        (nuswide.Builder, "train_10000", 186_577, {"query": 2_000, "database": 184_577, "train": 10_000}),
        (nuswide.Builder, "train_20000", 186_577, {"query": 2_000, "database": 184_577, "train": 20_000}),
        (nuswide.Builder, "sift_20000", 186_577, {"query": 2_000, "database": 184_577, "train": 20_000}),
        (nuswide.Builder, "queries_1_percent", 186_577, {"query": 1_866, "database": 184_711, "train": 184_711}),
        (mscoco.Builder, "main", 122_218, {"query": 4_952, "database": 117_266, "train": 5_000}),
        (
            mscoco.Builder,
            "recall_one",
            122_218,
            {"query": 1_000, "validation": 1_000, "database": 117_266, "train": 117_266},
        ),
    ],
)
def test_splits_of_the_papers_settings(builder, setting, num_pairs, expected):
    is_query = np.arange(num_pairs) >= 117_266 if builder is mscoco.Builder else None
    rows = split_rows(settings(builder)[setting], num_pairs, is_query)
    assert {name: len(of_split) for name, of_split in rows.items()} == expected
    held_out = [rows[name] for name in rows if name in ("query", "validation")]
    assert len(np.unique(np.concatenate([rows["database"], *held_out]))) == sum(map(len, [rows["database"], *held_out]))
    assert np.isin(rows["train"], rows["database"]).all()


def test_settings_come_with_three_seeds_that_split_differently():
    configs = mirflickr25k.Builder.builder_configs
    queries = [split_rows(configs[name], 20_015, None)["query"] for name in ("main", "main_seed1", "main_seed2")]
    assert [configs[name].seed for name in ("main", "main_seed1", "main_seed2")] == [0, 1, 2]
    assert not np.array_equal(queries[0], queries[1])
    assert not np.array_equal(queries[1], queries[2])


READERS = {
    "mirflickr25k": lambda path: mirflickr25k.read_mirflickr(path, MIRFLICKR_COUNTS),
    "nuswide": lambda path: nuswide.read_nuswide(path, NUSWIDE_COUNTS, visual_words=True),
    "mscoco": lambda path: mscoco.read_mscoco(path, 0, MSCOCO_COUNTS),
}


def dummy_data(name):
    return Path(mirflickr25k.__file__).parents[1] / name / "dummy_data"


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
    with pytest.raises(FileNotFoundError, match=rf"{file} does not exist.*{site}"):
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
