"""DGCPN: its graph and loss by hand, and networks that fit them."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.baselines.dgcpn import DGCPN, drop_small, graph_similarity, joined_cosines, similarity_loss
from cmimh_tf.codes import hamming_distance
from cmimh_tf.data.synthetic import make_synthetic


def test_cosines_of_both_views_are_joined_by_their_shares():
    image = np.array([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    text = np.array([[1.0], [-2.0], [0.5]])
    half = np.sqrt(0.5)
    images = np.array([[1, 0, half], [0, 1, half], [half, half, 1]])
    texts = np.array([[1, -1, 1], [-1, 1, -1], [1, -1, 1]])
    np.testing.assert_allclose(joined_cosines(image, text, 0.9), 0.9 * images + 0.1 * texts, atol=1e-6)


def test_a_row_keeps_its_largest_entries():
    matrix = np.array([[3.0, -1.0, 2.0, 5.0], [-4.0, -3.0, -2.0, -1.0]])
    np.testing.assert_array_equal(drop_small(matrix, 2), [[3, 0, 0, 5], [0, 0, -2, -1]])


def test_items_with_the_same_neighbours_are_alike():
    # Items 0 and 1 have nothing in common but their neighbours 2 and 3.
    cosines = np.array([[1, 0, 0.6, 0.2], [0, 1, 0.6, 0.2], [0.6, 0.6, 1, 0.1], [0.2, 0.2, 0.1, 1]], np.float32)
    # K = 2: steps from 0 and 1 are (0, 0, 3/4, 1/4), from 2 (1/2, 1/2, 0, 0), from 3 (1/2, 1/2, 0, 0).
    together = 4 * (9 / 16 + 1 / 16)
    coherence = np.array([[together, together, 0, 0], [together, together, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2]])
    target = graph_similarity(cosines, coherence_share=0.3, neighbour_share=0.5)
    np.testing.assert_allclose(target, 2 * (0.7 * cosines + 0.3 * coherence) - 1, rtol=1e-6)
    np.testing.assert_allclose(graph_similarity(cosines, 0, 0.5), 2 * cosines - 1, rtol=1e-6)


def test_items_without_a_similar_neighbour_stay_alone():
    cosines = np.array([[1, -0.5], [-0.5, 1]], np.float32)
    np.testing.assert_allclose(graph_similarity(cosines, 1.0, 0.5), [[-1, -1], [-1, -1]])


def test_loss_of_two_items_by_hand():
    image, text = tf.constant([[2.0, 0.0], [0.0, 1.0]]), tf.constant([[0.0, 5.0], [0.0, 1.0]])
    # Cosines: across [[0, 0], [1, 1]], of images the identity, of texts all 1. The diagonal of the target is not used.
    target = tf.constant([[7.0, 0.5], [0.25, 7.0]])
    pairs = (1.5**2 + 0.5**2) / 2
    across, images, texts = (0.5**2 + 0.75**2) / 4, (0.5**2 + 0.25**2) / 4, (0.5**2 + 0.75**2) / 4
    # across - images has 1 off-diagonal, -1 and 0 on it; across - texts -1 twice; images - texts -1 twice off-diagonal.
    consistency = 2 / 4 + 2 / 4 + 2 / 4 + 2 / 4
    expected = pairs + across + images + texts + consistency
    assert similarity_loss(image, text, target).numpy() == pytest.approx(expected)


@pytest.fixture(scope="module")
def data():
    return make_synthetic(600, seed=0, noise=0.3)


def test_codes_reproduce_the_similarity_of_unseen_items(data):
    train, unseen = data.take(np.arange(400)), data.take(np.arange(400, 600))
    hasher = DGCPN(32, hidden_units=64, epochs=10).fit(train.image, train.text)
    distances = hamming_distance(hasher.hash_images(unseen.image), hasher.hash_texts(unseen.text)).astype(float)
    target = graph_similarity(joined_cosines(unseen.image, unseen.text, 0.99), 0.3, 0.4)
    others = ~np.eye(200, dtype=bool)
    assert np.corrcoef(distances[others], target[others])[0, 1] < -0.5
    assert np.diag(distances).mean() < 0.4 * distances.mean()


def test_two_pairs_are_enough(data):
    few = data.take(np.arange(2))
    assert DGCPN(16, hidden_units=8, epochs=1).fit(few.image, few.text).hash_texts(few.text).shape == (2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_share": 1.1}, r"`text_share` must be in \[0, 1\]. Received: text_share=1.1"),
        ({"coherence_share": -1}, r"`coherence_share` must be in \[0, 1\]. Received: coherence_share=-1"),
        ({"neighbour_share": 2}, r"`neighbour_share` must be in \[0, 1\]. Received: neighbour_share=2"),
        ({"hidden_units": 0}, r"`hidden_units` must be positive. Received: hidden_units=0"),
        ({"epochs": 0}, r"`epochs` must be positive. Received: epochs=0"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DGCPN(8, **options)


def test_more_rows_than_can_be_compared_are_refused(monkeypatch):
    monkeypatch.setattr("cmimh_tf.baselines.dgcpn.MAX_ROWS", 3)
    rows = np.eye(4)
    with pytest.raises(ValueError, match=r"`image` must have at most 3 rows, .* Received: image.shape=\(4, 4\)"):
        DGCPN(8).fit(rows, rows)
