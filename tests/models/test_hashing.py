import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.models import hashing
from cmimh_tf.models.cmimh import CMIMH
from cmimh_tf.ops.hamming import unpack_codes


@pytest.fixture(scope="module")
def model():
    return CMIMH(get_preset("smoke"), 20, 12)


def test_a_code_is_one_where_the_probability_is_at_least_a_half(model):
    features = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32)
    probs = model({"image": features, "text": np.zeros((50, 12), np.float32)})["image_probs"].numpy()
    np.testing.assert_array_equal(unpack_codes(model.hash_images(features)), probs >= 0.5)


def test_blocks_do_not_change_the_codes(model, monkeypatch):
    features = np.random.default_rng(1).normal(size=(103, 12)).astype(np.float32)
    whole = model.hash_texts(features)
    monkeypatch.setattr(hashing, "BLOCK_ROWS", 10)
    np.testing.assert_array_equal(model.hash_texts(features), whole)


def test_takes_a_memory_map_of_halves_and_no_rows(model, tmp_path):
    features = np.random.default_rng(2).normal(size=(30, 20)).astype(np.float16)
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    np.testing.assert_array_equal(model.hash_images(mapped), model.hash_images(features.astype(np.float32)))
    assert model.hash_images(features[:0]).shape == (0, 2)


def test_bad_features_are_named(model):
    with pytest.raises(ValueError, match=r"`image` must have shape \[rows, 20\]. Received: \(3, 12\)"):
        model.hash_images(np.zeros((3, 12), np.float32))
    features = np.zeros((5000, 20), np.float32)
    features[4321, 7] = np.nan
    with pytest.raises(ValueError, match=r"`image` must be finite\. Received: row 4321"):
        model.hash_images(features)
