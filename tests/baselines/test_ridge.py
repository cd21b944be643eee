"""The ridge that is chosen without labels."""

import numpy as np
import pytest

from cmimh_tf.baselines import ACQ, CVH
from cmimh_tf.baselines.cca import fit_cca
from cmimh_tf.baselines.ridge import RIDGE_GRID, choose_ridge, fit_cca_with, sum_of_correlations


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
