"""DJSRH: networks whose codes reproduce the similarities that both views have together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.baselines.centred_view import CentredView
from cmimh_tf.baselines.hasher import Hasher, check_fitted, check_pairs
from cmimh_tf.baselines.joint_semantics import cosine_similarities, joint_semantics, reconstruction_loss
from cmimh_tf.baselines.network_hash import NetworkHash, network_inputs
from cmimh_tf.baselines.rounds import count_rounds

if TYPE_CHECKING:
    import tensorflow as tf
    from typing_extensions import Self

    from cmimh_tf.models.mlp import MLP

DEFAULT_IMAGE_SHARE = 0.9
DEFAULT_SECOND_ORDER = 0.4
DEFAULT_SCALE = 1.5
DEFAULT_WITHIN_WEIGHT = 0.1
DEFAULT_EPOCHS = 30
DEFAULT_HIDDEN_UNITS = 1024
BATCH_SIZE = 32
LEARNING_RATE = 0.1
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4


class DJSRH(Hasher):
    """Deep joint-semantics reconstructing hashing, on features.

    One network a view, with one hidden layer, gives relaxed codes H = tanh(slope * logits), where the slope
    grows as sqrt(epoch + 1). In each batch the cosines of the codes fit the target S of `joint_semantics`:

        minimise  mean (cos(H_i, H_t) - S)^2 + lambda (mean (cos(H_i, H_i) - S)^2 + mean (cos(H_t, H_t) - S)^2)

    A code is the sign of the logits. Any `code_length` is possible, whatever the width of a view.

    Reference: Su, Zhong and Zhang, "Deep Joint-Semantics Reconstructing Hashing for Large-Scale Unsupervised
    Cross-Modal Retrieval", ICCV 2019. Its image network is a fine-tuned AlexNet; here images come as features
    as texts do, and both networks have the shape of its text network, narrower to fit in seconds on a processor.

    Args:
        code_length: number of bits, a positive multiple of 8.
        image_share: beta, the weight of the images' similarities in the target.
        second_order: eta, the weight of second-order similarities in the target.
        scale: mu, the factor of the target.
        within_weight: lambda, the weight of the terms within a view.
        hidden_units: width of the hidden layers.
        epochs: passes over the pairs.
        seed: of initialisation and batches.
    """

    _image_hash: NetworkHash | None = None
    _text_hash: NetworkHash | None = None

    def __init__(
        self,
        code_length: int,
        *,
        image_share: float = DEFAULT_IMAGE_SHARE,
        second_order: float = DEFAULT_SECOND_ORDER,
        scale: float = DEFAULT_SCALE,
        within_weight: float = DEFAULT_WITHIN_WEIGHT,
        hidden_units: int = DEFAULT_HIDDEN_UNITS,
        epochs: int = DEFAULT_EPOCHS,
        seed: int = 0,
    ) -> None:
        super().__init__(code_length, seed=seed)
        for name, share in (("image_share", image_share), ("second_order", second_order)):
            if not 0 <= share <= 1:
                raise ValueError(f"`{name}` must be in [0, 1]. Received: {name}={share}.")
        for name, count in (("hidden_units", hidden_units), ("epochs", epochs)):
            if count < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={count}.")
        self.image_share = image_share
        self.second_order = second_order
        self.scale = scale
        self.within_weight = within_weight
        self.hidden_units = hidden_units
        self.epochs = epochs

    def fit(self, image: Any, text: Any) -> Self:
        from cmimh_tf.models.mlp import MLP

        image, text = check_pairs(image, text)
        views = CentredView.fit(image), CentredView.fit(text)
        networks = []
        for position, features in enumerate((image, text)):
            # An MLP takes one seed a layer from its seed on.
            network = MLP((self.hidden_units,), self.code_length, "relu", seed=4 * self.seed + 2 * position)
            network.build(features.shape)
            networks.append(network)
        self._train(networks, views, (image, text))
        self._image_hash, self._text_hash = (
            NetworkHash(view, *(variable.numpy() for variable in network.trainable_variables))
            for view, network in zip(views, networks, strict=True)
        )
        return self

    def hash_images(self, image: Any) -> np.ndarray:
        return check_fitted(self._image_hash).hash(image, "image")

    def hash_texts(self, text: Any) -> np.ndarray:
        return check_fitted(self._text_hash).hash(text, "text")

    def _train(
        self, networks: list[MLP], views: tuple[CentredView, ...], features: tuple[np.ndarray, np.ndarray]
    ) -> None:
        import tensorflow as tf

        from cmimh_tf.models.coupled_sgd import CoupledSGD

        variables = [network.trainable_variables for network in networks]
        optimizers = [CoupledSGD(LEARNING_RATE, MOMENTUM, WEIGHT_DECAY) for _ in networks]
        for optimizer, group in zip(optimizers, variables, strict=True):
            optimizer.build(group)
        inputs = [tf.constant(network_inputs(view, rows)) for view, rows in zip(views, features, strict=True)]
        # Similarities are those of the features as they came, not centred.
        raw = [tf.constant(rows, tf.float32) for rows in features]
        non_negative = [bool((rows >= 0).all()) for rows in features]

        @tf.function
        def step(batch: tf.Tensor, slope: tf.Tensor) -> None:
            similarities = [
                cosine_similarities(tf.gather(rows, batch), flag) for rows, flag in zip(raw, non_negative, strict=True)
            ]
            target = joint_semantics(
                *similarities, image_share=self.image_share, second_order=self.second_order, scale=self.scale
            )
            with tf.GradientTape() as tape:
                image_codes, text_codes = (
                    tf.tanh(slope * network(tf.gather(rows, batch)))
                    for network, rows in zip(networks, inputs, strict=True)
                )
                loss = reconstruction_loss(image_codes, text_codes, target, within_weight=self.within_weight)
            gradients = tape.gradient(loss, variables)
            for optimizer, group_gradients, group in zip(optimizers, gradients, variables, strict=True):
                optimizer.apply(group_gradients, group)

        random = np.random.default_rng(self.seed)
        num_pairs = len(features[0])
        batch_size = min(BATCH_SIZE, num_pairs)
        for epoch in count_rounds(self.epochs, "DJSRH, epoch"):
            slope = tf.constant(np.sqrt(epoch + 1), tf.float32)
            order = random.permutation(num_pairs)
            for start in range(0, num_pairs - batch_size + 1, batch_size):
                step(tf.constant(order[start : start + batch_size]), slope)
