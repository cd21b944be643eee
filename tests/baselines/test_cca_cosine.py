"""Real-valued CCA, and mAP by dot products."""

import numpy as np
import pytest

from cmimh_tf.baselines.cca import fit_cca
from cmimh_tf.baselines.cca_cosine import CCACosine, cosine_mean_average_precision
from cmimh_tf.data.synthetic import make_synthetic


def test_average_precision_by_hand():
    # By falling dot product the database is 2, 0, 1, 3, of which 2, 1 and 3 share the query's label.
    query, database = np.array([[1.0, 0]]), np.array([[0.8, 0.6], [0.6, 0.8], [1, 0], [-1, 0]])
    query_labels, database_labels = np.array([[1, 0]]), np.array([[0, 1], [1, 1], [1, 0], [1, 0]])

    scores = cosine_mean_average_precision(query, database, query_labels, database_labels, ks=[3, 1, 4, 100])
    over_all = (1 / 1 + 2 / 3 + 3 / 4) / 3
    assert scores == pytest.approx([(1 / 1 + 2 / 3) / 2, 1, over_all, over_all])
    assert cosine_mean_average_precision(query, database, query_labels, database_labels, ks=[3]) == scores[:1]


def test_query_without_relevant_items_scores_zero_and_stays_in_the_mean(monkeypatch):
    monkeypatch.setattr("cmimh_tf.baselines.cca_cosine._BLOCK_ROWS", 1)
    unit = np.eye(2)
    labels = np.array([[1, 0], [0, 1]])
    assert cosine_mean_average_precision(unit, unit[:1], labels, labels[:1], ks=[5]) == [0.5]


def test_many_shared_labels_do_not_overflow():
    ones = np.ones((1, 256), np.uint8)
    assert cosine_mean_average_precision(np.eye(1), np.eye(1), ones, ones, ks=[1]) == [1]


def test_vectors_are_weighted_variates_at_unit_length():
    data = make_synthetic(300, seed=0)
    cca = fit_cca(data.image, data.text, max_directions=5)
    vectors = CCACosine(5).fit(data.image, data.text).project_images(data.image)
    weighted = (data.image - cca.image_mean) @ cca.image_directions * cca.correlations
    np.testing.assert_allclose(vectors, weighted / np.linalg.norm(weighted, axis=1, keepdims=True))


def test_noiseless_pairs_have_equal_vectors():
    random = np.random.default_rng(0)
    factors = random.standard_normal((200, 6))
    image, text = factors @ random.standard_normal((6, 9)), factors @ random.standard_normal((6, 6))
    # There are only 6 directions, however many are asked for.
    cca = CCACosine(32, ridge=1e-10).fit(image, text)
    np.testing.assert_allclose(cca.project_images(image), cca.project_texts(text), atol=1e-3)
    assert cca.project_texts(text).shape == (200, 6)


def test_item_at_the_mean_stays_zero():
    data = make_synthetic(50, seed=0)
    cca = CCACosine(4).fit(data.image, data.text)
    assert (cca.project_texts(data.text.mean(axis=0, dtype=np.float64, keepdims=True)) == 0).all()


def test_wrong_use_is_refused():
    with pytest.raises(ValueError, match=r"`num_directions` must be positive. Received: num_directions=0"):
        CCACosine(0)
    with pytest.raises(RuntimeError, match="`fit` must be called before"):
        CCACosine(4).project_images(np.ones((1, 2)))
    data = make_synthetic(50, seed=0)
    with pytest.raises(ValueError, match="`text` must have as many columns as in `fit`, 32"):
        CCACosine(4).fit(data.image, data.text).project_texts(data.image)
