import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.losses.symmetric_kl import symmetric_kl


def naive_symmetric_kl(p, q):
    def kl(a, b):
        return a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))

    return (kl(p, q) + kl(q, p)).sum(axis=1).mean()


def test_zero_for_equal_distributions():
    logits = tf.constant([[1.0, -2.0, 0.3]])
    assert symmetric_kl(logits, logits).numpy() == 0.0


def test_equals_the_definition():
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 16, 8))
    expected = naive_symmetric_kl(1 / (1 + np.exp(-a)), 1 / (1 + np.exp(-b)))
    found = symmetric_kl(tf.constant(a, tf.float64), tf.constant(b, tf.float64)).numpy()
    assert found == pytest.approx(expected, rel=1e-9)


def test_is_symmetric_and_positive():
    a, b = tf.constant([[2.0, -1.0]]), tf.constant([[-1.0, 0.5]])
    assert symmetric_kl(a, b).numpy() == symmetric_kl(b, a).numpy() > 0
