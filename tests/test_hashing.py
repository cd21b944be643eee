import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf import hashing
from cmimh_tf.codes import unpack_codes
from cmimh_tf.config import get_preset
from cmimh_tf.layers import Encoder, FeatureScaler
from cmimh_tf.model import CMIMH


@pytest.fixture(scope="module")
def model():
    return CMIMH(config=get_preset("smoke"), image_units=20, text_units=12)


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
    for wrong in (np.nan, np.inf, -np.inf):
        features = np.zeros((5000, 20), np.float32)
        features[4321, 7] = wrong
        with pytest.raises(ValueError, match=r"`image` must be finite\. Received: row 4321"):
            model.hash_images(features)


@pytest.mark.parametrize("preset", ["default", "mscoco", "smoke"])
def test_a_row_of_nan_has_no_code_whatever_the_networks(preset):
    small = CMIMH.from_preset(preset, network__hidden_units=(8,), network__decoder_units=(8,))
    small = CMIMH(config=small.config, image_units=20, text_units=12)
    with pytest.raises(ValueError, match=r"`text` must be finite\. Received: row 1 "):
        small.hash_texts(np.stack([np.zeros(12), np.full(12, np.nan)]))


def test_a_model_that_is_not_finite_is_not_blamed_on_the_features():
    broken = CMIMH(config=get_preset("smoke"), image_units=20, text_units=12)
    broken.encoders["image"].denses[-1].bias.assign(np.full(16, np.nan))
    with pytest.raises(ValueError, match=r"The model must be finite\. Received: NaN logits for row 0 of `image`"):
        broken.hash_images(np.zeros((3, 20), np.float32))


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_logits_near_zero_get_their_sign_from_the_same_encoder_in_float64(activation):
    # A bias that cancels the float64 logit of row 0 leaves a value that float32 cannot tell from 0.
    generator = np.random.default_rng(3)
    features = generator.normal(size=(40, 12)).astype(np.float32)
    scaler, encoder = FeatureScaler(10.0), Encoder((16,), 8, None, seed=0, activation=activation)
    scaler.adapt(features)

    def encode(values):
        return encoder(scaler(values))

    encoder.build((None, 12))
    exact = encode(tf.constant(features, tf.float64)).numpy()
    encoder.denses[-1].bias.assign(-exact[0])
    expected = encode(tf.constant(features, tf.float64)).numpy()
    assert np.abs(expected[0]).max() < hashing.MARGIN
    found = hashing.settled_logits(encode, tf.constant(features)).numpy()
    np.testing.assert_array_equal(found[0], expected[0].astype(np.float32))
    np.testing.assert_allclose(found, expected, atol=1e-4)
