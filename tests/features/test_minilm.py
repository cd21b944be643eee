"""Sentence vectors, and the transformer against the same formulas in NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import erf

from cmimh_tf.features import make_text_features
from cmimh_tf.features.minilm import BertEncoder

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


UNITS, HEADS, INNER, WORDS, POSITIONS, LAYERS = 8, 2, 12, 11, 6, 2


def make_weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {
        "embeddings.word_embeddings.weight": (WORDS, UNITS),
        "embeddings.position_embeddings.weight": (POSITIONS, UNITS),
        "embeddings.token_type_embeddings.weight": (2, UNITS),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        dense = {f"attention.self.{part}": (UNITS, UNITS) for part in ("query", "key", "value")}
        dense |= {"attention.output.dense": (UNITS, UNITS), "intermediate.dense": (INNER, UNITS)}
        dense |= {"output.dense": (UNITS, INNER)}
        for part, shape in dense.items():
            shapes |= {f"{name}{part}.weight": shape, f"{name}{part}.bias": shape[:1]}
        norms += [f"{name}attention.output.LayerNorm", f"{name}output.LayerNorm"]
    for name in norms:
        shapes |= {f"{name}.weight": (UNITS,), f"{name}.bias": (UNITS,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def reference(weights, numbers):
    """The states of one text, by PyTorch's names and one head at a time."""

    def dense(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    embeddings = [weights[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")]
    x = norm(embeddings[0][numbers] + embeddings[1][: len(numbers)] + embeddings[2][0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        query, key, value = (dense(x, f"{name}attention.self.{part}") for part in ("query", "key", "value"))
        width = UNITS // HEADS
        mixed = []
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            scores = np.exp(query[:, part] @ key[:, part].T / np.sqrt(width))
            mixed.append(scores / scores.sum(axis=1, keepdims=True) @ value[:, part])
        attended = dense(np.concatenate(mixed, axis=1), f"{name}attention.output.dense")
        x = norm(x + attended, f"{name}attention.output.LayerNorm")
        inner = dense(x, f"{name}intermediate.dense")
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        x = norm(x + dense(inner, f"{name}output.dense"), f"{name}output.LayerNorm")
    return x


def test_states_are_those_of_the_formulas():
    weights = make_weights()
    states = BertEncoder(weights, HEADS)(tf.constant([[3, 0, 7, 7]]), tf.ones([1, 4]))
    np.testing.assert_allclose(states[0], reference(weights, [3, 0, 7, 7]), rtol=1e-4, atol=1e-4)


def test_padding_changes_nothing():
    encoder = BertEncoder(make_weights(), HEADS)
    short = encoder(tf.constant([[3, 5]]), tf.ones([1, 2]))
    padded = encoder(tf.constant([[3, 5, 0, 0], [1, 2, 3, 4]]), tf.constant([[1.0, 1, 0, 0], [1, 1, 1, 1]]))
    np.testing.assert_allclose(padded[0, :2], short[0], rtol=1e-5, atol=1e-5)


def test_missing_weight_is_named():
    weights = make_weights()
    del weights["encoder.layer.1.output.dense.bias"]
    with pytest.raises(ValueError, match=r"`weights` must have encoder\.layer\.1\.output\.dense\.bias"):
        BertEncoder(weights, HEADS)
