import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.layers import MLP, Critic, Discriminator, Encoder, FeatureScaler

SEED = tf.constant([3, 4], tf.int64)


def make_encoder(logit_limit: float | None = None, input_noise: float = 0.0) -> Encoder:
    encoder = Encoder((16,), 8, logit_limit, input_noise, seed=0, name="encoder")
    encoder.build((None, 12))
    return encoder


@pytest.fixture
def features() -> tf.Tensor:
    return tf.constant(np.random.default_rng(0).normal(size=(6, 12)), tf.float32)


def test_logits_stay_within_the_limit(features):
    assert np.abs(make_encoder()(100 * features)).max() > 5
    assert np.abs(make_encoder(logit_limit=5.0)(100 * features)).max() == 5


def test_noise_needs_a_seed(features):
    np.testing.assert_array_equal(make_encoder(input_noise=0.5)(features), make_encoder()(features))


def test_noise_is_decided_by_its_seed(features):
    encoder = make_encoder(input_noise=0.5)
    np.testing.assert_array_equal(encoder(features, SEED), encoder(features, SEED))
    assert not np.allclose(encoder(features, SEED), encoder(features))
    assert not np.allclose(encoder(features, SEED), encoder(features, SEED + 1))


def test_no_noise_ignores_the_seed(features):
    np.testing.assert_array_equal(make_encoder()(features, SEED), make_encoder()(features))


def test_noise_has_the_norm_that_was_asked_for(features):
    encoder = Encoder((), 12, None, 0.5, seed=0, name="identity")
    encoder.build((None, 12))
    encoder.denses[0].kernel.assign(tf.eye(12))
    many = tf.tile(features, [500, 1])
    noise = encoder(many, SEED) - many
    assert float(tf.norm(noise) / tf.norm(many)) == pytest.approx(0.5, rel=0.02)


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


@pytest.mark.parametrize(("activation", "function"), [("relu", lambda x: np.maximum(x, 0)), ("tanh", np.tanh)])
def test_hidden_layers_have_the_activation_and_the_last_has_none(features, activation, function):
    network = MLP((16, 9), 8, activation, seed=0)
    outputs = network(features).numpy()
    for dense in network.denses:
        dense.bias.assign(np.random.default_rng(1).normal(size=dense.bias.shape))
    hidden = features.numpy()
    for position, dense in enumerate(network.denses):
        hidden = hidden @ dense.kernel.numpy() + dense.bias.numpy()
        hidden = function(hidden) if position < 2 else hidden
    assert not np.allclose(network(features), outputs)
    np.testing.assert_allclose(network(features), hidden, rtol=1e-5, atol=1e-6)


def test_layers_of_a_network_start_from_different_seeds():
    network = MLP((12, 12), 12, "relu", seed=0)
    network.build((None, 12))
    kernels = [dense.kernel.numpy() for dense in network.denses]
    assert not np.array_equal(kernels[0], kernels[1])
    assert not np.array_equal(kernels[1], kernels[2])


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_scaling_fitted_on_batches_equals_that_on_an_array(batch_size):
    features = np.random.default_rng(0).normal(5.0, [1.0, 2.0, 0.1], size=(100, 3))
    batches, array = FeatureScaler(name="batches"), FeatureScaler(name="array")
    batches.adapt(tf.data.Dataset.from_tensor_slices(features).batch(batch_size))
    array.adapt(features)
    np.testing.assert_allclose(batches.mean, array.mean, rtol=1e-6)
    np.testing.assert_allclose(batches.scale, array.scale, rtol=1e-6)
    assert float(array.scale) == pytest.approx(10 / np.sqrt(np.var(features, axis=0).sum()), rel=1e-6)


def test_critic_multiplies_the_embeddings_of_its_two_networks(features):
    critic = Critic((5,), 4, seed=0)
    scores = critic(features[:4], features[4:]).numpy()
    embeddings = [network(rows).numpy() for network, rows in zip(
        (critic.image_network, critic.text_network), (features[:4], features[4:]), strict=True
    )]  # fmt: skip
    assert scores.shape == (4, 2)
    np.testing.assert_allclose(scores, embeddings[0] @ embeddings[1].T, rtol=1e-5, atol=1e-6)


def test_scores_of_a_shared_critic_are_symmetric(features):
    critic = Critic((5,), 4, seed=0, networks="shared")
    scores = critic(features[:4], features[4:]).numpy()
    np.testing.assert_allclose(scores, critic(features[4:], features[:4]).numpy().T, rtol=1e-5)
    # Equal codes score |phi|^2, and there is one network to train.
    embedded = critic.image_network(features).numpy()
    np.testing.assert_allclose(np.diag(critic(features, features)), np.sum(embedded**2, axis=1), rtol=1e-5)
    assert len(critic.trainable_variables) == len(critic.image_network.trainable_variables) == 4
    separate = Critic((5,), 4, seed=0)
    assert not np.allclose(separate(features, features), separate(features, features).numpy().T)


def test_pytorch_initialisation_is_uniform_within_one_over_the_root_of_the_inputs():
    network = MLP((300,), 200, "relu", seed=0, initializer="pytorch")
    network.build((None, 400))
    for dense, inputs in zip(network.denses, (400, 300), strict=True):
        for values in (dense.kernel.numpy(), dense.bias.numpy()):
            assert 0.95 < np.abs(values).max() * inputs**0.5 <= 1.0
            # A uniform distribution on [-a, a] has a deviation of a / sqrt(3).
            assert values.std() * (3 * inputs) ** 0.5 == pytest.approx(1.0, abs=0.15)
    assert not np.allclose(network.denses[0].bias, network.denses[0].kernel[0])
    again = MLP.from_config(network.get_config())
    again.build((None, 400))
    np.testing.assert_array_equal(again.denses[1].bias, network.denses[1].bias)


def test_discriminator_gives_one_logit_per_row(features):
    assert Discriminator((5,), seed=0)(features).shape == (6, 1)
