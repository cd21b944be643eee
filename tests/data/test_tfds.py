"""TFDS data sets: their splits, and which of their features is what."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.readers import tfds as tfds_reader
from cmimh_tf.data.readers.tfds import TfdsReader
from cmimh_tf.data.readers.tfds_roles import caption_of, find_roles, labels_of
from cmimh_tf.data.sources import open_records
from cmimh_tf.data.tfds_builders.base import RetrievalConfig
from cmimh_tf.data.tfds_builders.mirflickr25k import mirflickr25k_dataset_builder as mirflickr25k

DUMMY_DATA = Path(mirflickr25k.__file__).parent / "dummy_data"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The dummy files of MIR-Flickr25k, prepared as a user would: found in TFDS's folder of manual downloads."""
    data_dir = tmp_path_factory.mktemp("tfds")
    shutil.copytree(DUMMY_DATA, data_dir / "downloads" / "manual")
    config = RetrievalConfig("dummy", num_queries=2, num_train=4, counts=mirflickr25k.MirflickrCounts(12, 5, 9))
    with pytest.MonkeyPatch.context() as patch:
        builder = mirflickr25k.Builder(config=config, data_dir=str(data_dir))
        patch.setattr(tfds_reader, "make_builder", lambda name, data_dir: builder)
        return TfdsReader.open("mirflickr25k", str(data_dir))


def test_tfds_data_keep_their_splits_and_their_order(prepared, pictures):
    index = prepared.index()
    assert prepared.name == "mirflickr25k-dummy"
    assert [len(getattr(index.splits, name)) for name in ("train", "database", "query")] == [4, 7, 2]
    # The first of the database are trained on, as `make_splits` has it.
    np.testing.assert_array_equal(index.splits.train, index.splits.database[:4])
    records = {record.id: record for record in prepared}
    assert sorted(records) == sorted(f"im{number}" for number in (1, 2, 3, 5, 6, 8, 10, 11, 12))
    assert records["im1"].image_bytes == pictures[0]
    assert records["im1"].caption == "sky nikon"
    assert records["im1"].text.tolist() == [0, 1, 1, 0, 0]
    assert records["im1"].labels.shape == (24,)
    assert open_records(prepared.folder) == prepared


def test_official_files_that_are_missing_are_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"mscoco|cocodataset.org"):
        TfdsReader.open("mscoco", str(tmp_path))


def test_unknown_setting_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"settings main, main_seed1.*Received: 'all'"):
        TfdsReader.open("nuswide/all", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "similar"),
    [("nothing", ""), ("coco_captionz", " Did you mean coco_captions"), ("mscocoo/x", "Did you mean mscoco")],
)
def test_an_unknown_name_comes_with_similar_names_only(name, similar):
    with pytest.raises(ValueError, match=rf"`tfds:{name}` must name a TFDS data set\. Received: '\w+'\.") as caught:
        TfdsReader.open(name)
    message = str(caught.value)
    assert similar in message
    assert "\n" not in message
    assert len(message) < 300


@pytest.mark.parametrize("name", ["mnist:9.9.9", "mnist/nothing", "mnist/", ":1.0.0"])
def test_an_unknown_version_or_setting_is_refused_in_one_line(name):
    with pytest.raises(ValueError, match=rf"`tfds:{name}` must name a TFDS data set\. Received: .") as caught:
        TfdsReader.open(name)
    assert "\n" not in str(caught.value)


def test_roles_of_foreign_features():
    import tensorflow_datasets as tfds

    types = tfds.features
    features = types.FeaturesDict(
        {
            "image": types.Image(),
            "image/filename": types.Text(),
            "captions": types.Sequence({"id": np.int64, "text": types.Text()}),
            "objects": types.Sequence({"label": types.ClassLabel(names=["cat", "dog"])}),
        }
    )
    roles = find_roles(features, "coco_captions")
    assert (roles.image, roles.caption, roles.labels) == ("image", ("captions", "text"), ("objects", "label"))
    assert (roles.classes, roles.id) == (["cat", "dog"], "image/filename")
    example = {"captions": {"text": np.array([b"one", b"two"], object)}, "objects": {"label": np.array([1, 1])}}
    assert {caption_of(example, roles.caption, "here", row) for row in range(20)} == {"one", "two"}
    assert labels_of(example, roles.labels, 2).tolist() == [0, 1]
    with pytest.raises(DataError, match=r"must have a picture and a caption among its features. Received: label"):
        find_roles(types.FeaturesDict({"label": types.ClassLabel(num_classes=2)}), "mnist")
