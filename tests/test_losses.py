import math

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf import losses


def softplus(x):
    return math.log1p(math.exp(x))


def off_diagonal(size):
    return 1.0 - tf.eye(size)


def mutual_information(scores, negatives=None):
    scores = tf.constant(scores, tf.float32)
    negatives = off_diagonal(scores.shape[0]) if negatives is None else tf.constant(negatives, tf.float32)
    return losses.mutual_information(scores[None], negatives).numpy()


def naive_symmetric_kl(p, q):
    def kl(a, b):
        return a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))

    return (kl(p, q) + kl(q, p)).sum(axis=1).mean()


def test_reconstruction_sums_over_dimensions_and_modalities_and_averages_over_rows():
    image, image_found = tf.constant([[1.0, 2.0], [0.0, 0.0]]), tf.constant([[0.0, 0.0], [0.0, 3.0]])
    text, text_found = tf.constant([[1.0], [5.0]]), tf.constant([[3.0], [5.0]])
    expected = (1 + 4 + 9) / 2 + 4 / 2
    assert losses.reconstruction(image, image_found, text, text_found).numpy() == pytest.approx(expected)
    assert losses.cross_reconstruction(image, image_found, text, text_found).numpy() == pytest.approx(expected)
    assert losses.reconstruction(image, image, text, text).numpy() == 0.0


@pytest.mark.parametrize("term", [losses.reconstruction, losses.cross_reconstruction])
def test_mean_reconstruction_divides_each_modality_by_its_own_width(term):
    generator = np.random.default_rng(0)
    image, image_found, text, text_found = (
        tf.constant(generator.normal(size=(4, width)), tf.float32) for width in (7, 7, 3, 3)
    )
    image_sum = term(image, image_found, text, text).numpy()
    text_sum = term(image, image, text, text_found).numpy()
    mean = term(image, image_found, text, text_found, reduction="mean").numpy()
    assert mean == pytest.approx(image_sum / 7 + text_sum / 3)


def test_mean_modality_gap_is_the_sum_divided_by_the_code_length():
    image, text = (tf.constant(np.random.default_rng(seed).normal(size=(4, 16)), tf.float32) for seed in (0, 1))
    mean = losses.modality_gap(image, text, reduction="mean").numpy()
    assert mean == pytest.approx(losses.modality_gap(image, text).numpy() / 16)


def test_mutual_information_of_a_constant_critic_is_zero():
    assert mutual_information(np.zeros((8, 8))) == pytest.approx(0.0, abs=1e-6)


def test_mutual_information_of_a_perfect_critic_is_two_log_two():
    assert mutual_information(100.0 * np.eye(8) - 50.0) == pytest.approx(2 * math.log(2), rel=1e-5)


def test_mutual_information_of_a_literal_matrix():
    # Joint: 1 and 4; marginal: 2 and 3.
    expected = 2 * math.log(2) - (softplus(-1) + softplus(-4)) / 2 - (softplus(2) + softplus(3)) / 2
    assert mutual_information([[1.0, 2.0], [3.0, 4.0]]) == pytest.approx(expected, rel=1e-5)


def test_mutual_information_counts_only_the_given_negatives():
    # Only entry (0, 1) is a negative pair.
    expected = 2 * math.log(2) - (softplus(-1) + softplus(-4)) / 2 - softplus(2)
    assert mutual_information([[1.0, 2.0], [30.0, 4.0]], [[0.0, 1.0], [0.0, 0.0]]) == pytest.approx(expected, rel=1e-5)


def test_mutual_information_is_the_mean_over_samples():
    first, second = [[1.0, 2.0], [3.0, 4.0]], [[0.0, -1.0], [2.0, 5.0]]
    both = losses.mutual_information(tf.constant([first, second]), off_diagonal(2)).numpy()
    assert both == pytest.approx((mutual_information(first) + mutual_information(second)) / 2, rel=1e-5)


def test_mutual_information_stays_finite_for_large_scores_and_for_one_pair():
    assert np.isfinite(mutual_information([[1e4, 1e4], [-1e4, -1e4]]))
    assert mutual_information([[1.0]]) == pytest.approx(2 * math.log(2) - softplus(-1))


def test_modality_gap_equals_the_definition_of_the_symmetric_kl_divergence():
    a, b = np.random.default_rng(0).normal(size=(2, 16, 8))
    expected = naive_symmetric_kl(1 / (1 + np.exp(-a)), 1 / (1 + np.exp(-b)))
    found = losses.modality_gap(tf.constant(a, tf.float64), tf.constant(b, tf.float64)).numpy()
    assert found == pytest.approx(expected, rel=1e-9)


def test_modality_gap_is_zero_for_equal_distributions_symmetric_and_positive():
    a, b = tf.constant([[2.0, -1.0]]), tf.constant([[-1.0, 0.5]])
    assert losses.modality_gap(a, a).numpy() == 0.0
    assert losses.modality_gap(a, b).numpy() == losses.modality_gap(b, a).numpy() > 0


def test_independence_is_the_mean_logit_of_both_modalities():
    assert losses.independence(tf.constant([[1.0], [-3.0]]), tf.constant([[0.5], [6.5]])).numpy() == -1.0 + 3.5


def test_balance_is_the_distance_of_the_column_means_from_a_half():
    half = tf.constant([[0.0, 0.5], [1.0, 0.5]])
    assert losses.balance(half, half).numpy() == 0.0
    assert losses.balance(tf.ones([4, 6]), tf.zeros([4, 6])).numpy() == pytest.approx(6.0)
    # Column means 0.2 and 0.9.
    assert losses.balance(tf.constant([[0.1, 0.9], [0.3, 0.9]]), half).numpy() == pytest.approx(0.3 + 0.4)


def test_discriminators_without_information_have_log_two_each():
    zeros = tf.zeros([5, 1])
    assert losses.discriminator(zeros, zeros, zeros, zeros).numpy() == pytest.approx(2 * math.log(2))


def test_discriminator_loss_is_the_cross_entropy_of_each_part():
    joint_image, shuffled_image, joint_text, shuffled_text = (tf.constant([[v]]) for v in (4.0, -3.0, 2.0, 1.0))
    expected = (softplus(-4) + softplus(-3) + softplus(-2) + softplus(1)) / 2
    found = losses.discriminator(joint_image, shuffled_image, joint_text, shuffled_text).numpy()
    assert found == pytest.approx(expected, rel=1e-5)
