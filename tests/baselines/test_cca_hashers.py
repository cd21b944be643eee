"""CVH, ACQ and CCA-ITQ as hashers, and their rotations against closed forms."""

import numpy as np
import pytest

from cmimh_tf.baselines import ACQ, CVH, Hasher
from cmimh_tf.baselines.cca import fit_cca
from cmimh_tf.baselines.cca_hashers import (
    CCAITQ,
    alternate_rotations,
    iterative_quantisation,
    procrustes,
    random_rotation,
)
from cmimh_tf.baselines.linear import LinearHash
from cmimh_tf.codes import hamming_distance, unpack_codes

HASHERS = pytest.mark.parametrize("hasher_class", [CVH, ACQ])


@pytest.fixture
def views():
    """Two invertible linear views of the same 16 factors: what one view knows, the other does."""
    random = np.random.default_rng(0)
    factors = random.standard_normal((600, 16))
    return factors @ random.standard_normal((16, 20)) + 3, factors @ random.standard_normal((16, 16)) - 1


@pytest.fixture
def noisy_views(views):
    random = np.random.default_rng(1)
    return tuple(view + 2 * random.standard_normal(view.shape) for view in views)


@HASHERS
@pytest.mark.parametrize("code_length", [8, 16, 64])
def test_noiseless_pairs_have_equal_codes_also_when_unseen(hasher_class, code_length, views):
    image, text = views
    hasher = hasher_class(code_length, ridge=1e-10).fit(image[:400], text[:400])
    image_codes, text_codes = hasher.hash_images(image[400:]), hasher.hash_texts(text[400:])
    assert image_codes.shape == (200, code_length // 8)
    assert image_codes.dtype == np.uint8
    # A projection within rounding of 0 may fall on either side.
    assert (unpack_codes(image_codes) != unpack_codes(text_codes)).mean() < 1e-3
    # Equal codes are worth nothing if they are equal for all items.
    distances = hamming_distance(image_codes, text_codes)
    assert distances.mean() == pytest.approx(code_length / 2, rel=0.1)


def test_cvh_bits_differ_as_often_as_gaussian_signs_do(noisy_views):
    image, text = noisy_views
    hasher = CVH(16, ridge=1e-9).fit(image, text)
    differ = unpack_codes(hasher.hash_images(image)) != unpack_codes(hasher.hash_texts(text))
    # Signs of two jointly Gaussian variables of correlation rho differ with probability arccos(rho) / pi.
    expected = np.arccos(fit_cca(image, text, ridge=1e-9).correlations) / np.pi
    standard_error = np.sqrt(expected * (1 - expected) / len(image))
    assert (np.abs(differ.mean(axis=0) - expected) < 4 * standard_error).all()


@HASHERS
def test_pairs_are_nearer_than_other_items(hasher_class, noisy_views):
    image, text = noisy_views
    hasher = hasher_class(16).fit(image[:400], text[:400])
    distances = hamming_distance(hasher.hash_images(image[400:]), hasher.hash_texts(text[400:]))
    assert np.diag(distances).mean() < 0.7 * distances.mean()


@HASHERS
def test_scale_and_position_of_the_inputs_do_not_matter(hasher_class, noisy_views):
    image, text = noisy_views
    hasher = hasher_class(16).fit(image, text)
    moved = hasher_class(16).fit(100 * image + 7, 0.01 * text - 7)
    np.testing.assert_array_equal(moved.hash_images(100 * image + 7), hasher.hash_images(image))
    np.testing.assert_array_equal(moved.hash_texts(0.01 * text - 7), hasher.hash_texts(text))


@HASHERS
def test_seed_decides_every_random_choice(hasher_class, noisy_views):
    image, text = noisy_views
    codes = [hasher_class(32, seed=seed).fit(image, text).hash_images(image) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(codes[0], codes[1])
    assert (codes[0] != codes[2]).any()


@HASHERS
def test_more_bits_than_directions_are_all_in_use(hasher_class, noisy_views):
    image, text = noisy_views
    bits = unpack_codes(hasher_class(64).fit(image, text).hash_texts(text)).astype(float)
    assert ((bits.mean(axis=0) > 0.3) & (bits.mean(axis=0) < 0.7)).all()
    correlations = np.corrcoef(bits.T) - np.eye(64)
    assert np.abs(correlations).max() < 0.99


def test_cvh_bits_are_the_signs_of_the_leading_variates(noisy_views):
    image, text = noisy_views
    cca = fit_cca(image, text)
    expected = (image - cca.image_mean) @ cca.image_directions >= 0
    # Of 24 bits the first 16 are the canonical directions that there are.
    for code_length, num_directions in ((8, 8), (24, 16)):
        bits = unpack_codes(CVH(code_length).fit(image, text).hash_images(image))
        np.testing.assert_array_equal(bits[:, :num_directions], expected[:, :num_directions])


@pytest.mark.parametrize("code_length", [16, 24])
def test_acq_starts_from_rotated_variates_weighted_by_correlation(code_length, noisy_views):
    image, text = noisy_views
    cca = fit_cca(image, text)
    weighted = (text - cca.text_mean) @ cca.text_directions * cca.correlations
    expected = weighted @ random_rotation(16, code_length, seed=3) >= 0
    hasher = ACQ(code_length, rounds=0, seed=3).fit(image, text)
    np.testing.assert_array_equal(unpack_codes(hasher.hash_texts(text)), expected)


def test_acq_without_rounds_is_worse_than_with():
    random = np.random.default_rng(0)
    # Two clusters along each of 8 axes: rotations can find axes where all items are far from 0.
    factors = random.choice([-1.0, 1.0], (500, 8)) + 0.2 * random.standard_normal((500, 8))
    image = factors @ random.standard_normal((8, 12)) + 0.5 * random.standard_normal((500, 12))
    text = factors @ random.standard_normal((8, 12)) + 0.5 * random.standard_normal((500, 12))
    disagreements = []
    for rounds in (0, 50):
        hasher = ACQ(8, rounds=rounds).fit(image, text)
        disagreements.append((unpack_codes(hasher.hash_images(image)) != unpack_codes(hasher.hash_texts(text))).mean())
    assert disagreements[1] < 0.7 * disagreements[0]


def test_zero_counts_as_one():
    linear_hash = LinearHash(np.zeros(1), np.ones((1, 8)))
    assert linear_hash.hash([[0.0], [-1e-9]], "image").tolist() == [[255], [0]]


def test_blocks_of_rows_give_the_same_codes(monkeypatch, noisy_views):
    image, text = noisy_views
    hasher = CVH(16).fit(image, text)
    whole = hasher.hash_images(image)
    monkeypatch.setattr("cmimh_tf.baselines.linear._BLOCK_ROWS", 7)
    np.testing.assert_array_equal(hasher.hash_images(image), whole)
    assert hasher.hash_images(image[:0]).shape == (0, 2)


def test_hashers_share_one_interface():
    assert issubclass(CVH, Hasher)
    assert issubclass(ACQ, Hasher)


@HASHERS
def test_hashing_before_fit_is_refused(hasher_class):
    with pytest.raises(RuntimeError, match="`fit` must be called before"):
        hasher_class(8).hash_texts(np.zeros((1, 3)))


@HASHERS
def test_width_other_than_in_fit_is_refused(hasher_class, views):
    hasher = hasher_class(8).fit(*views)
    with pytest.raises(ValueError, match=r"`text` must have as many columns as in `fit`, 16. .*\(5, 20\)"):
        hasher.hash_texts(views[0][:5])


@pytest.mark.parametrize(
    ("image", "text", "error", "message"),
    [
        (np.zeros(3), np.zeros((3, 2)), ValueError, r"`image` must have shape \[N, D\]. .*shape=\(3,\)"),
        (np.zeros((3, 2)), np.zeros((3, 0)), ValueError, r"`text` must have shape \[N, D\]. .*\(3, 0\)"),
        (
            np.zeros((3, 2)),
            np.zeros((4, 2)),
            ValueError,
            r"same number of rows, at least 2. .*\(3, 2\), .*\(4, 2\)",
        ),
        (np.zeros((1, 2)), np.zeros((1, 2)), ValueError, "same number of rows, at least 2"),
        (
            np.array([["a"], ["b"]]),
            np.zeros((2, 1)),
            TypeError,
            "`image` must hold real numbers. .*dtype=<U1",
        ),
        (
            np.zeros((2, 1)),
            np.array([[0], [np.nan]]),
            ValueError,
            r"`text` must be finite. Received: text\[1\]",
        ),
    ],
)
@HASHERS
def test_wrong_pairs_are_refused(hasher_class, image, text, error, message):
    with pytest.raises(error, match=message):
        hasher_class(8).fit(image, text)


@HASHERS
@pytest.mark.parametrize("code_length", [0, 12, -8])
def test_wrong_code_length_is_refused(hasher_class, code_length):
    with pytest.raises(ValueError, match=f"positive multiple of 8. Received: code_length={code_length}"):
        hasher_class(code_length)


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


def rotation_error(variates, rotation):
    rotated = variates @ rotation
    return ((np.where(rotated >= 0, 1, -1) - rotated) ** 2).sum()


@pytest.mark.parametrize("code_length", [8, 24])
def test_rotation_stays_orthogonal_and_each_round_lowers_the_error(code_length):
    variates = np.random.default_rng(0).standard_normal((300, 8))
    start = random_rotation(8, code_length, seed=1)
    errors = []
    for rounds in range(8):
        rotation = iterative_quantisation(variates, start, rounds=rounds)
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(8), atol=1e-10)
        errors.append(rotation_error(variates, rotation))
    assert (np.diff(errors) < 1e-9).all()
    assert errors[-1] < errors[0]


def test_planted_rotation_is_recovered_up_to_order_and_signs():
    random = np.random.default_rng(0)
    codes = random.choice([-1.0, 1.0], (500, 4))
    planted = random_rotation(4, 4, seed=1)
    rotation = iterative_quantisation(codes @ planted, random_rotation(4, 4, seed=2), rounds=50)
    # The corners of a cube are turned onto themselves: planted @ rotation permutes and flips the axes.
    turned = np.abs(planted @ rotation)
    np.testing.assert_allclose(np.sort(turned, axis=0), [[0] * 4, [0] * 4, [0] * 4, [1] * 4], atol=1e-10)
    np.testing.assert_allclose(np.sort(turned, axis=1), [[0, 0, 0, 1]] * 4, atol=1e-10)


@pytest.mark.parametrize("hasher_class", [ACQ, CCAITQ])
def test_negative_rounds_are_refused(hasher_class):
    with pytest.raises(ValueError, match=r"`rounds` must not be negative. Received: rounds=-1"):
        hasher_class(8, rounds=-1)
