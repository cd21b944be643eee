"""Each TFDS builder passes TFDS's own test on dummy files in the official formats."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core import shuffle

from cmimh_tf.data.mirflickr25k import mirflickr25k_dataset_builder as mirflickr25k
from cmimh_tf.data.mirflickr25k.official_pairs import MirflickrCounts
from cmimh_tf.data.mscoco import mscoco_dataset_builder as mscoco
from cmimh_tf.data.mscoco.official_pairs import MscocoCounts
from cmimh_tf.data.nuswide import nuswide_dataset_builder as nuswide
from cmimh_tf.data.nuswide.official_pairs import NuswideCounts
from cmimh_tf.data.retrieval_builder import RetrievalConfig, ordered_keys, split_rows

# TFDS's test imports Beam, and with it google-auth, which warns of what it will require in 2027.
pytestmark = pytest.mark.filterwarnings("ignore:grpcio < .* does not support Post-Quantum:FutureWarning")

MIRFLICKR_COUNTS = MirflickrCounts(pictures=12, common_tags=5, kept=9)
NUSWIDE_COUNTS = NuswideCounts(pictures=14, tags=6, concepts=5, kept_concepts=3, visual_words=8, kept=12)
MSCOCO_COUNTS = MscocoCounts(train_pictures=9, val_pictures=6, classes=3, kept_train=8, kept_val=5)


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
