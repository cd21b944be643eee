import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.models.encoder import Encoder

SEED = tf.constant([3, 4], tf.int64)


def make_encoder(logit_limit: float | None = None, input_noise: float = 0.0) -> Encoder:
    encoder = Encoder((16,), 8, logit_limit, input_noise, seed=0, name="encoder")
    encoder.build((None, 12))
    return encoder


@pytest.fixture
def features() -> tf.Tensor:
    return tf.constant(np.random.default_rng(0).normal(size=(6, 12)), tf.float32)


def test_logits_stay_within_the_limit(features):
    assert np.abs(make_encoder()(100 * features)).max() > 5
    assert np.abs(make_encoder(logit_limit=5.0)(100 * features)).max() == 5


def test_noise_needs_a_seed(features):
    np.testing.assert_array_equal(make_encoder(input_noise=0.5)(features), make_encoder()(features))


def test_noise_is_decided_by_its_seed(features):
    encoder = make_encoder(input_noise=0.5)
    np.testing.assert_array_equal(encoder(features, SEED), encoder(features, SEED))
    assert not np.allclose(encoder(features, SEED), encoder(features))
    assert not np.allclose(encoder(features, SEED), encoder(features, SEED + 1))


def test_no_noise_ignores_the_seed(features):
    np.testing.assert_array_equal(make_encoder()(features, SEED), make_encoder()(features))


def test_noise_has_the_norm_that_was_asked_for(features):
    encoder = Encoder((), 12, None, 0.5, seed=0, name="identity")
    encoder.build((None, 12))
    encoder.denses[0].kernel.assign(tf.eye(12))
    many = tf.tile(features, [500, 1])
    noise = encoder(many, SEED) - many
    assert float(tf.norm(noise) / tf.norm(many)) == pytest.approx(0.5, rel=0.02)
