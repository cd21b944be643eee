"""CIRH: its target, mixture and loss by hand, and networks that learn the common codes."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.baselines.cirh import CIRH, GraphNetwork, hash_function_loss, mix_with_neighbours, pair_similarity
from cmimh_tf.codes import hamming_distance
from cmimh_tf.data.synthetic import make_synthetic


def test_target_of_three_items_by_hand():
    cosines = np.array([[1, 0.8, 0.1], [0.8, 1, 0.4], [0.1, 0.4, 1]], np.float32)
    # Two entries a row are kept: item 1 does not keep item 2, but item 2 keeps item 1.
    kept = np.array([[1, 0.8, 0], [0.8, 1, 0], [0, 0.4, 1]])
    one, near, half = np.tanh(0.5), np.tanh(0.4), np.tanh(0.2) / 2
    squashed = np.array([[one, near, 0], [near, one, half], [0, half, one]])
    target = pair_similarity(cosines, direct_share=0.3, neighbour_share=0.6)
    np.testing.assert_allclose(target, 0.3 * kept + 0.7 * (squashed + np.eye(3)), rtol=1e-6)


def test_items_are_mixed_with_their_two_nearest():
    similarities = tf.constant([[2.0, 0.5, 0.1, 0.9], [0.5, 2, 0.3, 0.4], [0.1, 0.3, 2, 0.2], [0.9, 0.4, 0.2, 2]])
    [mixed] = mix_with_neighbours([tf.eye(4)], similarities)
    expected = [[0.7, 0.1, 0, 0.2], [0.2, 0.7, 0, 0.1], [0, 0.2, 0.7, 0.1], [0.2, 0.1, 0, 0.7]]
    np.testing.assert_allclose(mixed, expected, rtol=1e-6)


def test_an_item_stands_in_for_missing_neighbours():
    [mixed] = mix_with_neighbours([tf.constant([[10.0], [20.0]])], tf.constant([[2.0, 0.5], [0.5, 2.0]]))
    np.testing.assert_allclose(mixed, [[0.8 * 10 + 0.2 * 20], [0.8 * 20 + 0.2 * 10]], rtol=1e-6)


def test_loss_of_the_hash_functions_by_hand():
    image, text = tf.constant([[0.5, 0.0], [0.0, 1.0]]), tf.constant([[0.0, 0.5], [0.0, 1.0]])
    codes, target = tf.constant([[1.0, -1.0], [-1.0, 1.0]]), tf.zeros([2, 2])
    agreement = (0.25 + 1 + 1 + 0) / 4 + (1 + 2.25 + 1 + 0) / 4 + (0.25 + 0.25) / 4
    # Cosines: across [[0, 0], [1, 1]], of images the identity, of texts all 1.
    correlation = 2 / 4 + 2 / 4 + 4 / 4
    loss = hash_function_loss(image, text, codes, target, correlation_weight=0.1)
    assert loss.numpy() == pytest.approx(agreement + 0.1 * correlation)


def test_graph_network_sees_both_views_and_neighbours():
    random = np.random.default_rng(0)
    network = GraphNetwork((5, 3), 16, 8, random)
    image, text = random.normal(size=(6, 5)).astype("float32"), random.normal(size=(6, 3)).astype("float32")
    own_codes, common, rebuilt = network([image, text], np.eye(6, dtype="float32"))
    assert [codes.shape for codes in own_codes] == [(6, 8), (6, 8)]
    assert common.shape == (6, 8)
    assert np.abs(common).max() < 1
    assert [features.shape for features in rebuilt] == [(6, 5), (6, 3)]
    # An image's own codes change with its text, and with the graph.
    other_text = network([image, text[::-1]], np.eye(6, dtype="float32"))[0][0]
    other_graph = network([image, text], np.eye(6, dtype="float32") + 0.5)[0][0]
    assert np.abs(other_text - own_codes[0]).max() > 0.01
    assert np.abs(other_graph - own_codes[0]).max() > 0.01


@pytest.fixture(scope="module")
def data():
    return make_synthetic(600, seed=0, noise=0.3)


def test_unseen_items_get_the_code_of_their_pair(data):
    train, unseen = data.take(np.arange(400)), data.take(np.arange(400, 600))
    hasher = CIRH(16, hidden_units=64, graph_units=64, batch_size=40, epochs=40).fit(train.image, train.text)
    distances = hamming_distance(hasher.hash_images(unseen.image), hasher.hash_texts(unseen.text)).astype(float)
    assert np.diag(distances).mean() < 0.6 * distances.mean()


def test_two_pairs_are_enough(data):
    few = data.take(np.arange(2))
    assert CIRH(16, hidden_units=8, graph_units=8, epochs=1).fit(few.image, few.text).hash_texts(few.text).shape == (
        2,
        2,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_share": 1.1}, r"`image_share` must be in \[0, 1\]. Received: image_share=1.1"),
        ({"direct_share": -1}, r"`direct_share` must be in \[0, 1\]. Received: direct_share=-1"),
        ({"neighbour_share": 2}, r"`neighbour_share` must be in \[0, 1\]. Received: neighbour_share=2"),
        ({"hidden_units": 0}, r"`hidden_units` must be positive. Received: hidden_units=0"),
        ({"batch_size": 0}, r"`batch_size` must be positive. Received: batch_size=0"),
        ({"epochs": 0}, r"`epochs` must be positive. Received: epochs=0"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CIRH(8, **options)
