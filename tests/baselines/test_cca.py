"""Canonical correlation analysis on views whose shared directions are known, and the ridge chosen without labels."""

import numpy as np
import pytest
import scipy.linalg

from cmimh_tf.baselines import ACQ, CVH
from cmimh_tf.baselines.cca import RIDGE_GRID, choose_ridge, fit_cca, fit_cca_with, sum_of_correlations


def planted_views(seed=0, num_pairs=4000, num_shared=3, width_image=8, width_text=6):
    """Views that mix `num_shared` common factors with factors of their own; returns them with the factors."""
    random = np.random.default_rng(seed)
    shared = random.standard_normal((num_pairs, num_shared))
    image_own = random.standard_normal((num_pairs, width_image - num_shared))
    text_own = random.standard_normal((num_pairs, width_text - num_shared))
    image = np.hstack([shared, image_own]) @ random.standard_normal((width_image, width_image))
    text = np.hstack([shared, text_own]) @ random.standard_normal((width_text, width_text))
    return image + 5, text - 2, shared


def test_shared_directions_are_recovered_and_private_ones_are_not():
    image, text, shared = planted_views()
    cca = fit_cca(image, text, ridge=1e-9)
    np.testing.assert_allclose(cca.correlations[:3], 1, atol=1e-5)
    # Independent factors correlate by chance, at about 1 / sqrt(N).
    assert cca.correlations[3:].max() < 0.1

    variates = (image - cca.image_mean) @ cca.image_directions[:, :3]
    residual = np.linalg.lstsq(variates, shared - shared.mean(axis=0), rcond=None)[1]
    assert residual.max() < 1e-3 * len(shared)


def test_paired_variates_of_shared_directions_are_equal():
    image, text, _ = planted_views()
    cca = fit_cca(image, text, max_directions=3, ridge=1e-9)
    np.testing.assert_allclose(
        (image - cca.image_mean) @ cca.image_directions,
        (text - cca.text_mean) @ cca.text_directions,
        atol=1e-2,
    )


@pytest.mark.parametrize("ridge", [1e-3, 0.5])
def test_directions_solve_the_generalised_eigenproblem(ridge):
    image, text, _ = planted_views(num_pairs=60)
    cca = fit_cca(image, text, ridge=ridge)

    def regularised(covariance):
        return covariance + ridge * np.mean(np.diag(covariance)) * np.eye(len(covariance))

    covariance = np.cov(np.hstack([image, text]).T, bias=True)
    image_part, text_part = regularised(covariance[:8, :8]), regularised(covariance[8:, 8:])
    cross = covariance[:8, 8:]
    expected = scipy.linalg.eigh(cross @ np.linalg.solve(text_part, cross.T), image_part)[0][::-1]
    np.testing.assert_allclose(cca.correlations**2, expected[:6], rtol=1e-8)

    np.testing.assert_allclose(
        cross @ np.linalg.solve(text_part, cross.T) @ cca.image_directions,
        image_part @ cca.image_directions * cca.correlations**2,
        atol=1e-8,
    )
    np.testing.assert_allclose(
        cca.text_directions * cca.correlations,
        np.linalg.solve(text_part, cross.T @ cca.image_directions),
        atol=1e-8,
    )
    np.testing.assert_allclose(cca.image_directions.T @ image_part @ cca.image_directions, np.eye(6), atol=1e-8)
    np.testing.assert_allclose(cca.text_directions.T @ text_part @ cca.text_directions, np.eye(6), atol=1e-8)


def test_scale_of_a_view_does_not_matter():
    image, text, _ = planted_views(num_pairs=100)
    cca, scaled = fit_cca(image, text), fit_cca(100 * image, 0.01 * text)
    np.testing.assert_allclose(scaled.correlations, cca.correlations, rtol=1e-9)
    np.testing.assert_allclose(100 * scaled.image_directions, cca.image_directions, rtol=1e-6)
    np.testing.assert_allclose(0.01 * scaled.text_directions, cca.text_directions, rtol=1e-6)


def test_directions_without_variance_are_left_out():
    image, text, _ = planted_views(num_pairs=100)
    # Six columns, of which only five are free: as in topic shares, which sum to 1.
    text[:, -1] = 1 - text[:, :-1].sum(axis=1)
    assert len(fit_cca(image, text).correlations) == 5


def test_half_precision_is_computed_in_double():
    image, text, _ = planted_views(num_pairs=100)
    image, text = image.astype(np.float16), text.astype(np.float16)
    half, double = fit_cca(image, text), fit_cca(image.astype(np.float64), text.astype(np.float64))
    np.testing.assert_allclose(half.correlations, double.correlations, rtol=1e-12)


@pytest.mark.parametrize(
    ("image", "text", "ridge", "message"),
    [
        (np.ones((4, 2)), np.eye(4), 1e-3, "`image` must have rows that differ. Received: 4 equal rows."),
        (np.eye(4), np.full((4, 2), 0.1), 1e-3, "`text` must have rows that differ. Received: 4 equal rows."),
        (np.eye(4), np.eye(4), 0, "`ridge` must be positive. Received: ridge=0."),
        (np.eye(4), np.eye(4), float("nan"), "`ridge` must be positive. Received: ridge=nan."),
        (
            np.array([[1.0], [1], [-1], [-1]]),
            np.array([[1.0], [-1], [1], [-1]]),
            1e-3,
            "`image` and `text` must be correlated. Received: pairs whose largest canonical correlation is 0",
        ),
    ],
)
def test_unusable_views_are_refused(image, text, ridge, message):
    with pytest.raises(ValueError, match=f"^{message.replace('.', '[.]')}"):
        fit_cca(image, text, ridge=ridge)


def views(num_pairs, noise, seed=0):
    random = np.random.default_rng(seed)
    shared = random.standard_normal((num_pairs, 4))
    return tuple(
        shared @ random.standard_normal((4, width)) + noise * random.standard_normal((num_pairs, width))
        for width in (40, 30)
    )


def test_sum_of_correlations_by_hand():
    a = np.array([[1.0, 0, 5], [2, 1, 5], [3, 0, 5]])
    b = np.array([[2.0, 0, 1], [4, -1, 2], [6, 0, 4]])
    assert sum_of_correlations(a, b) == pytest.approx(1 - 1 + 0)
    assert sum_of_correlations(a + 9, 3 * b) == pytest.approx(0)


def test_few_noisy_pairs_need_more_ridge_than_many():
    few, many = (choose_ridge(*views(num_pairs, 0.5), max_directions=4, seed=0) for num_pairs in (60, 3000))
    assert few in RIDGE_GRID
    assert few > 3 * many


def test_choice_retrieves_better_than_the_default_on_few_pairs():
    image, text = views(1060, 1.0)
    pair_correlation = []
    for ridge in (1e-3, "auto"):
        cca = fit_cca_with(ridge, image[:60], text[:60], max_directions=4, seed=0)
        variates = (
            (image[60:] - cca.image_mean) @ cca.image_directions,
            (text[60:] - cca.text_mean) @ cca.text_directions,
        )
        pair_correlation.append(sum_of_correlations(*variates))
    assert pair_correlation[1] > 1.1 * pair_correlation[0]


@pytest.mark.parametrize("hasher_class", [CVH, ACQ])
def test_hashers_take_the_chosen_ridge(hasher_class):
    image, text = views(60, 2.0)
    chosen = choose_ridge(image, text, max_directions=8, seed=5)
    np.testing.assert_array_equal(
        hasher_class(8, ridge="auto", seed=5).fit(image, text).hash_images(image),
        hasher_class(8, ridge=chosen, seed=5).fit(image, text).hash_images(image),
    )


def test_given_ridge_is_taken_as_it_is():
    image, text = views(60, 1.0)
    np.testing.assert_array_equal(
        fit_cca_with(0.2, image, text, max_directions=3, seed=0).correlations,
        fit_cca(image, text, max_directions=3, ridge=0.2).correlations,
    )


def test_wrong_ridge_and_too_few_pairs_are_refused():
    image, text = views(60, 1.0)
    with pytest.raises(ValueError, match=r"""`ridge` must be a positive number or "auto". Received: ridge='best'"""):
        CVH(8, ridge="best").fit(image, text)
    with pytest.raises(ValueError, match=r'`ridge="auto"` needs at least 10 pairs. Received: 9 pairs'):
        CVH(8, ridge="auto").fit(image[:9], text[:9])
