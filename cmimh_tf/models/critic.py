"""The separable critic of the mutual information bound."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from cmimh_tf.config import LossConfig
from cmimh_tf.losses.js_mutual_information import js_mutual_information, js_mutual_information_from_pairs
from cmimh_tf.models.mlp import MLP
from cmimh_tf.ops.bernoulli import sample_codes


class Critic(keras.layers.Layer):
    """T(a, b) = phi_image(a) . phi_text(b): two networks score all pairs of a batch with one matrix product.

    Args:
        hidden_units: the widths of the hidden layers of both networks.
        embedding_units: the width of the space in which the product is taken.
        seed: seed of the initialisation.
    """

    def __init__(self, hidden_units: Sequence[int], embedding_units: int, seed: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.image_network = MLP(hidden_units, embedding_units, "leaky_relu", seed, name="image_network")
        self.text_network = MLP(hidden_units, embedding_units, "leaky_relu", seed + 50, name="text_network")

    def build(self, input_shape: Sequence[int | None]) -> None:
        self.image_network.build(input_shape)
        self.text_network.build(input_shape)
        self.built = True

    def call(self, image_codes: tf.Tensor, text_codes: tf.Tensor) -> tf.Tensor:
        """The scores of all pairs.

        Args:
            image_codes: [images, code_length] probs or codes.
            text_codes: [texts, code_length] probs or codes.

        Returns:
            [images, texts] tensor of T.
        """
        return tf.matmul(self.image_network(image_codes), self.text_network(text_codes), transpose_b=True)

    def mutual_information(
        self, image_logits: tf.Tensor, text_logits: tf.Tensor, options: LossConfig, seeds: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """The JS bound on I(h_image; h_text).

        Args:
            image_logits: [batch, code_length] tensor.
            text_logits: [batch, code_length] tensor.
            options: what the critic sees (`critic_inputs`, `critic_samples`) and its `critic_negatives`.
            seeds: two [2] int tensors, for the sampled codes of images and of texts.

        Returns:
            A scalar, the mean over the sampled pairs of codes.
        """
        if options.critic_inputs == "probs":
            return self._bound(tf.sigmoid(image_logits), tf.sigmoid(text_logits), options.critic_negatives)
        image_seeds, text_seeds = (tf.unstack(tf.random.split(seed, num=options.critic_samples)) for seed in seeds)
        bounds = [
            self._bound(
                sample_codes(image_logits, image_seed),
                sample_codes(text_logits, text_seed),
                options.critic_negatives,
            )
            for image_seed, text_seed in zip(image_seeds, text_seeds, strict=True)
        ]
        return tf.add_n(bounds) / len(bounds)

    def _bound(self, image_codes: tf.Tensor, text_codes: tf.Tensor, negatives: str) -> tf.Tensor:
        scores = self(image_codes, text_codes)
        if negatives == "all":
            return js_mutual_information(scores)
        # Image i meets text i - 1 of an already shuffled batch: one negative each, and never its own pair.
        shifted = tf.roll(scores, shift=1, axis=1)
        return js_mutual_information_from_pairs(tf.linalg.diag_part(scores), tf.linalg.diag_part(shifted))
