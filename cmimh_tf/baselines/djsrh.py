"""DJSRH: networks whose codes reproduce the joint similarities of both views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.baselines.hasher import CentredView, Hasher, check_fitted, check_pairs
from cmimh_tf.baselines.network_hash import NetworkHash, network_inputs
from cmimh_tf.progress import track

if TYPE_CHECKING:
    import tensorflow as tf
    from typing_extensions import Self

    from cmimh_tf.layers import MLP


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

    One network per view, with one hidden layer, gives relaxed codes H = tanh(slope * logits), where the slope
    grows as sqrt(epoch + 1). In each batch the cosines of the codes fit the target S of `joint_semantics`:

        minimise  mean (cos(H_i, H_t) - S)^2 + lambda (mean (cos(H_i, H_i) - S)^2 + mean (cos(H_t, H_t) - S)^2)

    A code is the sign of the logits. Any `code_length` is possible.

    Reference: Su, Zhong and Zhang, "Deep Joint-Semantics Reconstructing Hashing for Large-Scale Unsupervised
    Cross-Modal Retrieval", ICCV 2019. Its image network is a fine-tuned AlexNet. Here images are features, as texts
    are, and both networks have the shape of its text network, but narrower so that they train in minutes on a CPU.

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
        from cmimh_tf.layers import MLP

        image, text = check_pairs(image, text)
        views = CentredView.fit(image), CentredView.fit(text)
        networks = []
        for position, features in enumerate((image, text)):
            # An MLP uses one seed per layer, counted from its own.
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

        from cmimh_tf.optimizers import CoupledSGD

        variables = [network.trainable_variables for network in networks]
        optimizers = [CoupledSGD(LEARNING_RATE, MOMENTUM, WEIGHT_DECAY) for _ in networks]
        for optimizer, group in zip(optimizers, variables, strict=True):
            optimizer.build(group)
        inputs = [tf.constant(network_inputs(view, rows)) for view, rows in zip(views, features, strict=True)]
        # Similarities are those of the original features, not of centred ones.
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
        for epoch in track(range(self.epochs), self.epochs, "DJSRH", "epochs"):
            slope = tf.constant(np.sqrt(epoch + 1), tf.float32)
            order = random.permutation(num_pairs)
            for start in range(0, num_pairs - batch_size + 1, batch_size):
                step(tf.constant(order[start : start + batch_size]), slope)


def cosine_similarities(features: tf.Tensor, non_negative: bool) -> tf.Tensor:
    """Cosines of all pairs of rows, in [-1, 1].

    Features without negative values, such as counts or activations behind a ReLU, only have cosines in [0, 1]:
    these are stretched by 2 c - 1, as the authors do with theirs.

    Args:
        features: [m, D].
        non_negative: whether no feature of the whole data set is below 0.
    """
    import tensorflow as tf

    unit = tf.math.l2_normalize(features, axis=1)
    cosines = tf.matmul(unit, unit, transpose_b=True)
    return 2 * cosines - 1 if non_negative else cosines


def joint_semantics(
    image_similarities: tf.Tensor,
    text_similarities: tf.Tensor,
    *,
    image_share: float,
    second_order: float,
    scale: float,
) -> tf.Tensor:
    """S = mu ((1 - eta) J + eta J J' / m), with J = beta S_i + (1 - beta) S_t.

    The second term compares how two items relate to all m items of the batch: friends of friends.

    Args:
        image_similarities: S_i, [m, m] cosines of images.
        text_similarities: S_t, [m, m] cosines of texts.
        image_share: beta.
        second_order: eta.
        scale: mu.

    Returns:
        S, [m, m].
    """
    import tensorflow as tf

    joined = image_share * image_similarities + (1 - image_share) * text_similarities
    batch_size = tf.cast(tf.shape(joined)[0], joined.dtype)
    friends_of_friends = tf.matmul(joined, joined, transpose_b=True) / batch_size
    return scale * ((1 - second_order) * joined + second_order * friends_of_friends)


def reconstruction_loss(
    image_codes: tf.Tensor, text_codes: tf.Tensor, target: tf.Tensor, *, within_weight: float
) -> tf.Tensor:
    """Mean squared difference of the codes' cosines and the target, across views plus lambda times within each.

    Args:
        image_codes: [m, L] relaxed codes.
        text_codes: [m, L] relaxed codes, paired by row.
        target: S, [m, m].
        within_weight: lambda.
    """
    import tensorflow as tf

    image_unit, text_unit = tf.math.l2_normalize(image_codes, axis=1), tf.math.l2_normalize(text_codes, axis=1)

    def error(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.square(tf.matmul(a, b, transpose_b=True) - target))

    within = error(image_unit, image_unit) + error(text_unit, text_unit)
    return error(image_unit, text_unit) + within_weight * within
