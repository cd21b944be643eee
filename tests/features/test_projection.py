import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.features import Projection
from cmimh_tf.features.projection import with_fixed_signs
from cmimh_tf.layers import FeatureScaler


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(50, 6)) * [5, 4, 3, 2, 1, 0.1] + 7).astype(np.float32)


def test_signs_are_those_of_the_largest_entries():
    components = tf.constant([[0.1, -0.9], [-0.8, 0.2]])
    np.testing.assert_allclose(with_fixed_signs(components), [[-0.1, 0.9], [0.8, -0.2]])


def test_wide_rows_are_projected_on_their_principal_components(rows):
    projected = Projection.fit(rows, 3)(rows).numpy()
    centred = rows - rows.mean(axis=0)
    _, _, directions = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    largest = directions[np.arange(3), np.abs(directions[:3]).argmax(axis=1)]
    np.testing.assert_allclose(projected, centred @ (directions[:3] * np.sign(largest)[:, None]).T, atol=1e-4)


def test_norm_is_reached_on_the_training_rows(rows):
    projected = Projection.fit(rows, 3, input_norm=10.0)(rows).numpy()
    assert np.sqrt((projected**2).sum(axis=1).mean()) == pytest.approx(10, rel=1e-5)


def test_narrow_rows_are_scaled_as_the_model_would(rows):
    scaler = FeatureScaler(10.0)
    scaler.build((None, 6))
    scaler.adapt(rows)
    np.testing.assert_allclose(Projection.fit(rows, 6, input_norm=10.0)(rows), scaler(rows), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(Projection.fit(rows, None)(rows), rows)


def test_components_beyond_the_rank_are_zero_on_new_rows(rows):
    few = rows[:3]
    new = Projection.fit(few, 4)(rows).numpy()
    assert np.abs(new[:, 2:]).max() == 0
    assert np.abs(new[:, :2]).max() > 1


def test_saved_and_loaded_is_the_same(rows, tmp_path):
    for projection in (Projection.fit(rows, 3, input_norm=5.0), Projection.fit(rows, None)):
        projection.save(tmp_path / "a.npz")
        loaded = Projection.load(tmp_path / "a.npz")
        np.testing.assert_array_equal(loaded(rows), projection(rows))
        assert loaded.dim == projection.dim


@pytest.mark.parametrize(
    ("vectors", "units", "message"),
    [
        (np.zeros((0, 3)), 2, r"`vectors` must have shape \[N, width\]. Received: vectors.shape=\(0, 3\)"),
        (np.zeros((2, 3)), 0, "`max_units` must be positive. Received: max_units=0"),
    ],
)
def test_bad_arguments(vectors, units, message):
    with pytest.raises(ValueError, match=message):
        Projection.fit(vectors, units)
