"""The rotations of ACQ, each step against its closed form."""

import numpy as np
import pytest

from cmimh_tf.baselines.acq import alternate_rotations
from cmimh_tf.baselines.rotated_variates import procrustes, random_rotation


def quantisation_error(image, text, image_rotation, text_rotation):
    """The objective of ACQ at the best codes for these rotations."""
    image, text = image @ image_rotation, text @ text_rotation
    codes = np.where(image + text >= 0, 1.0, -1.0)
    return ((codes - image) ** 2).sum() + ((codes - text) ** 2).sum()


@pytest.mark.parametrize(("num_rows", "num_columns"), [(8, 8), (3, 16)])
def test_random_rotation_has_orthonormal_rows(num_rows, num_columns):
    rotation = random_rotation(num_rows, num_columns, seed=0)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(num_rows), atol=1e-12)
    np.testing.assert_array_equal(rotation, random_rotation(num_rows, num_columns, seed=0))
    assert not np.allclose(rotation, random_rotation(num_rows, num_columns, seed=1))


@pytest.mark.parametrize(("num_rows", "num_columns"), [(8, 8), (3, 16)])
def test_procrustes_finds_the_rotation_that_was_applied(num_rows, num_columns):
    rotation = random_rotation(num_rows, num_columns, seed=0)
    variates = np.random.default_rng(1).standard_normal((50, num_rows))
    np.testing.assert_allclose(procrustes(variates, variates @ rotation), rotation, atol=1e-10)


def test_codes_that_were_rotated_are_a_fixed_point():
    codes = np.random.default_rng(0).choice([-1.0, 1.0], (200, 8))
    rotation = random_rotation(8, 8, seed=1)
    image_rotation, text_rotation = alternate_rotations(codes @ rotation.T, codes @ rotation.T, rotation, rounds=5)
    np.testing.assert_allclose(image_rotation, rotation, atol=1e-10)
    np.testing.assert_allclose(text_rotation, rotation, atol=1e-10)


@pytest.mark.parametrize("code_length", [8, 24])
def test_each_round_lowers_the_quantisation_error(code_length):
    random = np.random.default_rng(0)
    image = random.standard_normal((300, 8)) * np.linspace(1, 0.2, 8)
    text = image + 0.3 * random.standard_normal((300, 8))
    start = random_rotation(8, code_length, seed=2)
    errors = [
        quantisation_error(image, text, *alternate_rotations(image, text, start, rounds=rounds)) for rounds in range(8)
    ]
    assert (np.diff(errors) < 1e-9).all()
    assert errors[-1] < 0.98 * errors[0]
