"""Sentence vectors: means over pieces only, unit length, and close for close meanings."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.features import make_text_features

TEXTS = ["A dog runs on the beach.", "Two puppies play in the sand near the sea.", "A train stands at a station.", ""]


@pytest.fixture(scope="module")
def minilm():
    return make_text_features("minilm")


def test_rows_have_unit_length_and_the_width_of_the_model(minilm):
    vectors = minilm(TEXTS).numpy()
    assert vectors.shape == (4, minilm.dim) == (4, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_close_meanings_are_close(minilm):
    dog, puppies, train, _ = minilm(TEXTS).numpy()
    assert dog @ puppies > dog @ train + 0.2


def test_row_is_the_same_alone_and_in_a_batch(minilm):
    together = minilm(TEXTS).numpy()
    alone = np.concatenate([minilm([text]) for text in TEXTS])
    np.testing.assert_allclose(alone, together, atol=1e-5)


def test_mean_is_over_the_pieces(minilm):
    pieces = minilm.tokenizer(TEXTS[:1]).to_tensor()
    states = minilm.encoder(pieces, tf.ones_like(pieces, tf.float32)).numpy()[0]
    mean = states.mean(axis=0)
    np.testing.assert_allclose(minilm(TEXTS[:1])[0], mean / np.linalg.norm(mean), atol=1e-6)


def test_saved_model_needs_nothing_of_ours(minilm, tmp_path):
    module = tf.Module()
    module.features = minilm
    module.vectors = tf.function(minilm, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(loaded.vectors(tf.constant(TEXTS)), minilm(TEXTS), atol=1e-6)
