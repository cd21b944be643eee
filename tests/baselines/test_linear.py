"""Random projections: Hamming distances that estimate angles around the mean."""

import numpy as np

from cmimh_tf.baselines.linear import RandomProjections
from cmimh_tf.codes import hamming_distance

# Around their mean, 0, the rows stand at 0, 45, 90 and 180 degrees from the first, and three more balance them.
ROWS = np.array([[1.0, 0], [1, 1], [0, 1], [-1, 0], [-1, -1], [0, -1], [0, 0]])
TEXT = np.arange(7.0)[:, np.newaxis]


def test_bits_differ_by_the_angle_over_pi():
    codes = RandomProjections(4096).fit(ROWS, TEXT).hash_images(ROWS[:4])
    shares = hamming_distance(codes[:1], codes)[0] / 4096
    # Four standard errors of a share of one half.
    np.testing.assert_allclose(shares, [0, 1 / 4, 1 / 2, 1], atol=4 * 0.5 / np.sqrt(4096))


def test_angles_are_taken_around_the_training_mean():
    moved = ROWS + np.array([8, -4])
    here, there = (RandomProjections(64).fit(rows, TEXT).hash_images(rows[:6]) for rows in (ROWS, moved))
    np.testing.assert_array_equal(here, there)
