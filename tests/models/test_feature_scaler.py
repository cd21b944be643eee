import numpy as np
import pytest

from cmimh_tf.models.feature_scaler import FeatureScaler


def adapted(features, norm=10.0):
    scaler = FeatureScaler(norm, name="image_scaler")
    scaler.build((None, features.shape[1]))
    scaler.adapt(features)
    return scaler


@pytest.mark.parametrize("factor", [1e-6, 0.01, 1.0, 100.0, 1e6])
def test_rows_get_the_target_norm_whatever_their_scale(factor):
    features = (np.random.default_rng(0).normal(3.0, 1.0, size=(500, 7)) * factor).astype(np.float32)
    scaled = adapted(features)(features).numpy()
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-3)
    assert np.sqrt((scaled**2).sum(axis=1).mean()) == pytest.approx(10.0, rel=1e-4)


def test_unfitted_is_the_identity():
    scaler = FeatureScaler(10.0)
    scaler.build((None, 2))
    np.testing.assert_array_equal(scaler(np.array([[3.0, -1.0]], np.float32)), [[3.0, -1.0]])


def test_equal_rows_cannot_be_scaled():
    with pytest.raises(ValueError, match=r"`features` of 'image_scaler' must vary\. Received: 4 equal rows\."):
        adapted(np.ones((4, 3), np.float32))
