from typing import Any

import numpy as np
import pytest

from cmimh_tf.data import make_synthetic, make_synthetic_factors


def explained(inputs: np.ndarray, targets: np.ndarray) -> float:
    """Share of the targets' variance on the later half of rows that a linear map of the inputs explains."""
    half = len(inputs) // 2
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1), inputs.dtype)], axis=1)
    weights = np.linalg.lstsq(inputs[:half], targets[:half], rcond=None)[0]
    rest = targets[half:]
    return float(1 - np.square(rest - inputs[half:] @ weights).sum() / np.square(rest - rest.mean(0)).sum())


@pytest.mark.parametrize(("nonlinear", "least"), [(False, 0.95), (True, 0.7)])
def test_shared_factors_are_in_both_and_private_ones_in_one(nonlinear: bool, least: float) -> None:
    pairs = make_synthetic_factors(4000, seed=0, nonlinear=nonlinear)
    assert explained(pairs.data.image, pairs.shared) > least
    assert explained(pairs.data.text, pairs.shared) > least
    assert explained(pairs.data.image, pairs.image_private) > least
    assert explained(pairs.data.text, pairs.text_private) > least
    assert explained(pairs.data.image, pairs.text_private) < 0.02
    assert explained(pairs.data.text, pairs.image_private) < 0.02
    assert explained(pairs.shared, pairs.image_private) < 0.02


def test_a_linear_map_misses_part_of_a_nonlinear_world() -> None:
    linear, nonlinear = (make_synthetic_factors(2000, seed=0, noise=0.0, nonlinear=flag) for flag in (False, True))
    assert explained(linear.data.image, linear.shared) > 0.9999
    assert explained(nonlinear.data.image, nonlinear.shared) < 0.999


def test_labels_follow_the_shared_factors() -> None:
    pairs = make_synthetic_factors(500, seed=0, class_spread=0.0)
    assert pairs.data.labels is not None
    for label in pairs.data.labels.T:
        members = pairs.shared[label == 1]
        np.testing.assert_array_equal(members, np.broadcast_to(members[0], members.shape))
    assert len(np.unique(pairs.shared, axis=0)) == 8


@pytest.mark.parametrize("labels_per_pair", [1, 3, 5])
def test_every_pair_has_as_many_labels_as_asked(labels_per_pair: int) -> None:
    data = make_synthetic(200, seed=0, num_classes=5, labels_per_pair=labels_per_pair)
    assert data.labels is not None
    assert data.labels.shape == (200, 5)
    assert (data.labels.sum(axis=1) == labels_per_pair).all()


def test_shapes_follow_the_options() -> None:
    pairs = make_synthetic_factors(7, seed=0, shared_dim=3, private_dim=0, image_dim=5, text_dim=4)
    assert pairs.data.image.shape == (7, 5)
    assert pairs.data.text.shape == (7, 4)
    assert pairs.shared.shape == (7, 3)
    assert pairs.image_private.shape == pairs.text_private.shape == (7, 0)
    assert len(make_synthetic(1, seed=0)) == 1


def test_noise_is_of_the_size_asked_for() -> None:
    clean, noisy = (make_synthetic(4000, seed=0, noise=noise) for noise in (0.0, 0.5))
    assert np.std(noisy.image - clean.image) == pytest.approx(0.5, rel=0.02)
    assert np.std(noisy.text - clean.text) == pytest.approx(0.5, rel=0.02)


def test_without_private_scale_images_are_a_function_of_the_shared_factors() -> None:
    pairs = make_synthetic_factors(2000, seed=0, private_scale=0.0, noise=0.0)
    assert explained(pairs.shared, pairs.data.image) > 0.9999


def test_seeds_repeat_and_differ() -> None:
    first, again, other = (make_synthetic(20, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.image, again.image)
    np.testing.assert_array_equal(first.text, again.text)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert not np.allclose(first.image, other.image)


def test_a_world_does_not_depend_on_the_number_of_pairs() -> None:
    options = {"seed": 0, "noise": 0.0, "private_dim": 0}
    small, large = make_synthetic_factors(300, **options), make_synthetic_factors(900, **options)
    weights = np.linalg.lstsq(small.shared, small.data.image, rcond=None)[0]
    np.testing.assert_allclose(large.shared @ weights, large.data.image, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"num_pairs": 0},
            ValueError,
            r"`num_pairs` must be an integer of at least 1\. Received: num_pairs=0\.",
        ),
        ({"num_pairs": 2.0}, TypeError, r"`num_pairs` must be an integer of at least 1\."),
        ({"seed": -1}, ValueError, r"`seed` must be an integer of at least 0\. Received: seed=-1\."),
        ({"private_dim": -1}, ValueError, r"`private_dim` must be an integer of at least 0\."),
        ({"noise": -0.5}, ValueError, r"`noise` must be a number of at least 0\. Received: noise=-0\.5\."),
        (
            {"noise": float("nan")},
            ValueError,
            r"`noise` must be a number of at least 0\. Received: noise=nan\.",
        ),
        ({"class_spread": "1"}, TypeError, r"`class_spread` must be a number of at least 0\."),
        (
            {"labels_per_pair": 9},
            ValueError,
            r"`labels_per_pair` must be at most `num_classes`\. Received: labels_per_pair=9, num_classes=8\.",
        ),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_synthetic(**({"num_pairs": 5, "seed": 0} | options))
