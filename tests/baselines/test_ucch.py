"""UCCH: its two losses by hand, and networks that find an item's pair."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.baselines.ucch import UCCH, contrastive_loss, own_first, ranking_loss
from cmimh_tf.codes import hamming_distance
from cmimh_tf.data.synthetic import make_synthetic


def test_contrastive_loss_is_the_cross_entropy_of_the_first_candidate():
    codes = tf.constant([[0.5, 0.25], [1.0, 0.0]])
    binary_codes = tf.constant([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]])
    candidates = tf.constant([[0, 2, 2], [1, 0, 2]])
    # Scores: row 0 has 0.75, -0.75, -0.75; row 1 has -1, 1, -1.
    first = -np.log(np.exp(0.75) / (np.exp(0.75) + 2 * np.exp(-0.75)))
    second = -np.log(np.exp(-1) / (2 * np.exp(-1) + np.exp(1)))
    assert contrastive_loss(codes, binary_codes, candidates).numpy() == pytest.approx((first + second) / 2)


def test_ranking_loss_by_hand():
    image, text = tf.constant([[1.0, 0.0], [0.0, 1.0]]), tf.constant([[1.0, 0.0], [0.6, 0.8]])
    # Scores [[1, 0.6], [0, 0.8]]; with a margin of 0.5 only the 0 is far enough below its own pair, in both directions.
    rows = [np.log(np.exp(1) + np.exp(0.6)) - 1 + 0.5, np.log(np.exp(0.8) + np.exp(-0.1)) - 0.8 + 0.5]
    columns = [np.log(np.exp(1) + np.exp(-0.1)) - 1 + 0.5, np.log(np.exp(0.8) + np.exp(0.6)) - 0.8 + 0.5]
    assert ranking_loss(image, text, 0.5, 0.1).numpy() == pytest.approx(np.mean(rows) + np.mean(columns))


def test_own_item_comes_first_and_every_other_once():
    np.testing.assert_array_equal(own_first(3), [[0, 1, 2], [1, 0, 2], [2, 0, 1]])
    np.testing.assert_array_equal(own_first(1), [[0]])


@pytest.fixture(scope="module")
def data():
    return make_synthetic(600, seed=0, noise=0.3)


def test_unseen_items_find_their_pair(data):
    train, unseen = data.take(np.arange(400)), data.take(np.arange(400, 600))
    settings = {"hidden_units": 256, "batch_size": 50, "num_negatives": 200}
    hasher = UCCH(32, epochs=20, **settings).fit(train.image, train.text)
    distances = hamming_distance(hasher.hash_images(unseen.image), hasher.hash_texts(unseen.text)).astype(float)
    assert np.diag(distances).mean() < 0.6 * distances.mean()


def test_memory_keeps_its_past(data):
    few = data.take(np.arange(100))
    codes = [
        UCCH(32, hidden_units=16, epochs=4, momentum=momentum, batch_size=10, num_negatives=50)
        .fit(few.image, few.text)
        .hash_images(few.image)
        for momentum in (0.0, 1.0)
    ]
    assert (codes[0] != codes[1]).any()


def test_two_pairs_are_enough(data):
    few = data.take(np.arange(2))
    hasher = UCCH(16, hidden_units=8, epochs=2, num_negatives=3).fit(few.image, few.text)
    assert hasher.hash_texts(few.text).shape == (2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contrast_share": 1.1}, r"`contrast_share` must be in \[0, 1\]. Received: contrast_share=1.1"),
        ({"momentum": -1}, r"`momentum` must be in \[0, 1\]. Received: momentum=-1"),
        ({"temperature": 0}, r"`temperature` must be positive. Received: temperature=0"),
        ({"num_negatives": 0}, r"`num_negatives` must be positive. Received: num_negatives=0"),
        ({"batch_size": 0}, r"`batch_size` must be positive. Received: batch_size=0"),
        ({"epochs": 0}, r"`epochs` must be positive. Received: epochs=0"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        UCCH(8, **options)
