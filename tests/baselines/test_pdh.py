"""PDH: decorrelation and support vector machines in closed form, and bits that both views can predict."""

import numpy as np
import pytest

from cmimh_tf.baselines.pdh import PDH, decorrelate, fit_linear_svms
from cmimh_tf.codes import unpack_codes
from cmimh_tf.data.synthetic import make_synthetic


def test_decorrelated_columns_have_unit_covariance():
    random = np.random.default_rng(0)
    margins = random.standard_normal((300, 5)) @ random.standard_normal((5, 5)) + 3
    result = decorrelate(margins)
    np.testing.assert_allclose(np.cov(result.T, bias=True), np.eye(5), atol=1e-10)
    np.testing.assert_allclose(result.mean(axis=0), 0, atol=1e-10)


def test_uncorrelated_columns_are_only_standardised():
    margins = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    np.testing.assert_allclose(decorrelate(margins * [5, 0.1] + [0, 7]), margins, atol=1e-12)


def test_two_correlated_columns_are_moved_by_as_much_each():
    random = np.random.default_rng(0)
    first, second = decorrelate(random.standard_normal((400, 2))).T
    margins = np.stack([first, 0.6 * first + 0.8 * second], axis=1)
    # R = [[1, .6], [.6, 1]] has the eigenvalues 1.6 and 0.4 along (1, 1) and (1, -1); the result is M R^-1/2.
    diagonal, other = (1.6**-0.5 + 0.4**-0.5) / 2, (1.6**-0.5 - 0.4**-0.5) / 2
    np.testing.assert_allclose(decorrelate(margins), margins @ [[diagonal, other], [other, diagonal]], atol=1e-10)


def test_rank_deficient_margins_are_decorrelated_as_far_as_it_goes():
    random = np.random.default_rng(0)
    margins = random.standard_normal((100, 2)) @ random.standard_normal((2, 4))
    covariance = np.cov(decorrelate(margins).T, bias=True)
    np.testing.assert_allclose(covariance @ covariance, covariance, atol=1e-10)
    assert np.trace(covariance) == pytest.approx(2)
    assert np.isfinite(decorrelate(np.zeros((10, 3)))).all()


def test_bits_of_unseen_pairs_agree_and_are_kept_apart(monkeypatch):
    data = make_synthetic(1200, seed=0, shared_dim=16)
    train, unseen = data.take(np.arange(800)), data.take(np.arange(800, 1200))

    def agreement_and_largest_correlation():
        hasher = PDH(8).fit(train.image, train.text)
        image_bits = unpack_codes(hasher.hash_images(unseen.image)).astype(float)
        text_bits = unpack_codes(hasher.hash_texts(unseen.text)).astype(float)
        return (image_bits == text_bits).mean(), np.abs(np.corrcoef(text_bits.T) - np.eye(8)).max()

    agreement, correlation = agreement_and_largest_correlation()
    assert agreement > 0.9
    assert correlation < 0.5
    # Without decorrelation, machines drift towards the bits that are easiest to predict.
    monkeypatch.setattr("cmimh_tf.baselines.pdh.decorrelate", lambda margins: margins)
    assert agreement_and_largest_correlation()[1] > 0.7


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match=r"`cost` must be positive. Received: cost=0"):
        PDH(8, cost=0)
    with pytest.raises(ValueError, match=r"`rounds` must be at least 1. Received: rounds=0"):
        PDH(8, rounds=0)


@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
def test_two_points_have_their_closed_form(cost):
    # w^2 / 2 + 2 C (1 - w)^2 is smallest at w = 4 C / (1 + 4 C); with the signs swapped, at minus that.
    weights = fit_linear_svms(
        np.array([[1.0], [-1.0]]), np.array([[1.0, -1], [-1, 1]]), cost=cost, start=np.zeros((1, 2))
    )
    expected = 4 * cost / (1 + 4 * cost)
    np.testing.assert_allclose(weights, [[expected, -expected]], rtol=1e-4)


def test_points_beyond_the_margin_have_no_say():
    features = np.array([[1.0], [-1.0], [50.0], [-80.0]])
    weights = fit_linear_svms(features, np.sign(features), cost=1.0, start=np.zeros((1, 1)))
    np.testing.assert_allclose(weights, [[4 / 5]], rtol=1e-4)


def test_gradient_vanishes_for_each_machine():
    random = np.random.default_rng(0)
    features = random.standard_normal((200, 6))
    signs = np.sign(features @ random.standard_normal((6, 3)) + random.standard_normal((200, 3)))
    weights = fit_linear_svms(features, signs, cost=0.5, start=np.zeros((6, 3)))
    violations = np.maximum(0, 1 - signs * (features @ weights))
    np.testing.assert_allclose(weights, features.T @ (signs * violations), atol=1e-2)
    # Solved together or alone, and from wherever it starts, a machine is the same.
    alone = fit_linear_svms(features, signs[:, 1:2], cost=0.5, start=np.ones((6, 1)))
    np.testing.assert_allclose(alone, weights[:, 1:2], atol=1e-3)
