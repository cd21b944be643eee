"""DJSRH: its target and loss by hand, and networks that fit them."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.baselines.djsrh import DJSRH, cosine_similarities, joint_semantics, reconstruction_loss
from cmimh_tf.baselines.registry import make_baseline
from cmimh_tf.codes import hamming_distance
from cmimh_tf.data.synthetic import make_synthetic


def test_cosines_of_non_negative_features_are_stretched():
    features = tf.constant([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    half = np.sqrt(0.5)
    cosines = np.array([[1, 0, half], [0, 1, half], [half, half, 1]])
    np.testing.assert_allclose(cosine_similarities(features, False), cosines, atol=1e-6)
    np.testing.assert_allclose(cosine_similarities(features, True), 2 * cosines - 1, atol=1e-6)


def test_target_of_two_items_by_hand():
    image, text = tf.constant([[1.0, 0.5], [0.5, 1.0]]), tf.constant([[1.0, -0.5], [-0.5, 1.0]])
    # J = 0.6 S_i + 0.4 S_t has 1 and 0.1; J J' / 2 has (1 + 0.01) / 2 = 0.505 and (0.1 + 0.1) / 2 = 0.1.
    target = joint_semantics(image, text, image_share=0.6, second_order=0.4, scale=1.5)
    same, other = 1.5 * (0.6 * 1 + 0.4 * 0.505), 1.5 * (0.6 * 0.1 + 0.4 * 0.1)
    np.testing.assert_allclose(target, [[same, other], [other, same]], rtol=1e-6)


def test_loss_of_two_items_by_hand():
    image, text = tf.constant([[2.0, 0.0], [0.0, 1.0]]), tf.constant([[0.0, 5.0], [0.0, 1.0]])
    # Cosines: across [[0, 0], [1, 1]], of images the identity, of texts all 1. The target is 0.
    loss = reconstruction_loss(image, text, tf.zeros([2, 2]), within_weight=0.1)
    assert loss.numpy() == pytest.approx(2 / 4 + 0.1 * (2 / 4 + 4 / 4))
    assert reconstruction_loss(image, image, tf.eye(2), within_weight=0.1).numpy() == pytest.approx(0)


@pytest.fixture(scope="module")
def data():
    return make_synthetic(800, seed=0, noise=0.3)


def test_codes_reproduce_the_similarity_of_unseen_items(data):
    train, unseen = data.take(np.arange(600)), data.take(np.arange(600, 800))
    hasher = DJSRH(32, hidden_units=64, epochs=20).fit(train.image, train.text)
    distances = hamming_distance(hasher.hash_images(unseen.image), hasher.hash_texts(unseen.text)).astype(float)
    target = joint_semantics(
        *(cosine_similarities(tf.constant(view), False) for view in (unseen.image, unseen.text)),
        image_share=0.9,
        second_order=0.4,
        scale=1.5,
    ).numpy()
    assert np.corrcoef(distances.ravel(), target.ravel())[0, 1] < -0.5
    assert np.diag(distances).mean() < 0.75 * distances.mean()


def test_seed_decides_initialisation_and_batches(data):
    few = data.take(np.arange(100))
    codes = [
        DJSRH(16, hidden_units=16, epochs=2, seed=seed).fit(few.image, few.text).hash_texts(few.text)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(codes[0], codes[1])
    assert (codes[0] != codes[2]).any()


def test_fewer_pairs_than_a_batch_are_one_batch(data):
    few = data.take(np.arange(10))
    codes = [
        make_baseline("DJSRH", 64, seed, hidden_units=8, epochs=1).fit(few.image, few.text).hash_images(few.image)
        for seed in (0, 1)
    ]
    assert codes[0].shape == (10, 8)
    # The order within the only batch does not matter: what differs is the initialisation.
    assert (codes[0] != codes[1]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_share": 1.1}, r"`image_share` must be in \[0, 1\]. Received: image_share=1.1"),
        ({"second_order": -1}, r"`second_order` must be in \[0, 1\]. Received: second_order=-1"),
        ({"hidden_units": 0}, r"`hidden_units` must be at least 1. Received: hidden_units=0"),
        ({"epochs": 0}, r"`epochs` must be at least 1. Received: epochs=0"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DJSRH(8, **options)
