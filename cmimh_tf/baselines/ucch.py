"""UCCH: networks that tell an item's own binary code from those of other items, and rank its pair first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from cmimh_tf.baselines.deep_hasher import (
    DeepHasher,
    FusedAdam,
    check_positive,
    check_shares,
    make_network,
    shuffled_batches,
)
from cmimh_tf.baselines.hasher import check_pairs
from cmimh_tf.progress import track

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_CONTRAST_SHARE = 0.7
DEFAULT_TEMPERATURE = 0.9
DEFAULT_MOMENTUM = 0.4
DEFAULT_NUM_NEGATIVES = 4096
DEFAULT_MARGIN = 0.2
DEFAULT_SHIFT = 0.1
DEFAULT_HIDDEN_UNITS = 8192
DEFAULT_BATCH_SIZE = 256
DEFAULT_EPOCHS = 20
WARM_UP_EPOCHS = 1
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 1e-6
GRADIENT_NORM = 1.0


class UCCH(DeepHasher):
    """Unsupervised contrastive cross-modal hashing, on features.

    Each view has a network with relaxed codes u = tanh(outputs), scaled to unit length. A memory holds a vector per
    pair, the running mean of its codes of both views. The networks minimise

        a (L_i + L_t) + (1 - a) R

    L is the contrastive loss of a view: the cross-entropy of finding the pair's own binary code, the signs of its
    memory, among the codes of random pairs. R is `ranking_loss`. In the first epoch the memory is still random, and the
    signs of the batch's own mean codes take its place.

    Reference: Hu, Zhu, Lin, Peng, Zhao and Peng, "Unsupervised Contrastive Cross-modal Hashing", IEEE TPAMI 2022. The
    settings are those of its authors' published command for features.

    Args:
        code_length: number of bits, a positive multiple of 8.
        contrast_share: a, the weight of the contrastive losses.
        temperature: of the contrastive losses, for codes of length 1; it grows with sqrt(L) as codes do.
        momentum: the weight of a memory's past in its update.
        num_negatives: random codes that the own code is told from.
        margin: of the ranking loss.
        shift: of the ranking loss.
        hidden_units: width of the hidden layers, two for images and one for texts.
        batch_size: pairs per step.
        epochs: passes over the pairs.
        seed: of initialisation, batches, memory and negatives.
    """

    def __init__(
        self,
        code_length: int,
        *,
        contrast_share: float = DEFAULT_CONTRAST_SHARE,
        temperature: float = DEFAULT_TEMPERATURE,
        momentum: float = DEFAULT_MOMENTUM,
        num_negatives: int = DEFAULT_NUM_NEGATIVES,
        margin: float = DEFAULT_MARGIN,
        shift: float = DEFAULT_SHIFT,
        hidden_units: int = DEFAULT_HIDDEN_UNITS,
        batch_size: int = DEFAULT_BATCH_SIZE,
        epochs: int = DEFAULT_EPOCHS,
        seed: int = 0,
    ) -> None:
        super().__init__(code_length, seed=seed)
        check_shares(contrast_share=contrast_share, momentum=momentum)
        check_positive(
            temperature=temperature,
            num_negatives=num_negatives,
            hidden_units=hidden_units,
            batch_size=batch_size,
            epochs=epochs,
        )
        self.contrast_share = contrast_share
        self.temperature = temperature
        self.momentum = momentum
        self.num_negatives = num_negatives
        self.margin = margin
        self.shift = shift
        self.hidden_units = hidden_units
        self.batch_size = batch_size
        self.epochs = epochs

    def fit(self, image: Any, text: Any) -> Self:
        image, text = check_pairs(image, text)
        random = np.random.default_rng(self.seed)
        networks = [
            make_network(features.shape[1], [self.hidden_units] * depth, self.code_length, random=random)
            for features, depth in ((image, 2), (text, 1))
        ]
        variables = [variable for network in networks for variable in network.trainable_variables]
        optimizer = FusedAdam(LEARNING_RATE, variables)
        views = [tf.constant(features, tf.float32) for features in (image, text)]
        memory = _unit(random.choice([-1, 1], (len(image), self.code_length)).astype(np.float32))
        scale = 1 / (self.temperature * self.code_length**0.5)

        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None, self.code_length]),
                tf.TensorSpec([None, None], tf.int64),
                tf.TensorSpec([], tf.bool),
            ],
            autograph=False,
        )
        def step(batch: tf.Tensor, memory_signs: tf.Tensor, candidates: tf.Tensor, warming_up: tf.Tensor) -> tf.Tensor:
            """One update; returns the mean codes of the batch, [m, L].

            Args:
                batch: [m] row numbers of the pairs.
                memory_signs: [N, L] of -1 and 1.
                candidates: [m, 1 + K] rows of binary codes per pair, its own first.
                warming_up: whether the binary codes are the signs of the batch's mean codes, not those of the memory.
            """
            with tf.GradientTape() as tape:
                image_codes, text_codes = (
                    tf.math.l2_normalize(tf.tanh(network(tf.gather(view, batch), training=True)), axis=1)
                    for network, view in zip(networks, views, strict=True)
                )
                mean_codes = tf.stop_gradient((image_codes + text_codes) / 2)
                binary_codes = tf.cond(warming_up, lambda: tf.sign(mean_codes), lambda: memory_signs)
                contrast = contrastive_loss(scale * image_codes, binary_codes, candidates)
                contrast += contrastive_loss(scale * text_codes, binary_codes, candidates)
                ranking = ranking_loss(image_codes, text_codes, self.margin, self.shift)
                loss = self.contrast_share * contrast + (1 - self.contrast_share) * ranking
            gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), GRADIENT_NORM)
            optimizer.apply([gradient + WEIGHT_DECAY * w for gradient, w in zip(gradients, variables, strict=True)])
            return mean_codes

        for epoch in track(range(self.epochs), self.epochs, "UCCH", "epochs"):
            warming_up = epoch < WARM_UP_EPOCHS
            momentum = 0 if warming_up else self.momentum
            for batch in shuffled_batches(len(image), self.batch_size, random):
                if warming_up:
                    candidates = own_first(len(batch))
                else:
                    negatives = random.integers(len(image), size=(len(batch), self.num_negatives))
                    candidates = np.concatenate([batch[:, np.newaxis], negatives], axis=1)
                inputs = batch, np.sign(memory), candidates, warming_up
                codes = step(*map(tf.constant, inputs)).numpy()
                updated = momentum * memory[batch] + (1 - momentum) * _unit(codes)
                memory[batch] = _unit(updated)
        self._image_network, self._text_network = networks
        return self


def contrastive_loss(codes: tf.Tensor, binary_codes: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Mean of -log softmax(codes . candidates)[0], the cross-entropy of finding the own code, which comes first.

    Args:
        codes: [m, L] relaxed codes, divided by the temperature.
        binary_codes: [M, L] of -1 and 1.
        candidates: [m, 1 + K] rows of `binary_codes`.
    """
    scores = tf.gather(tf.matmul(codes, binary_codes, transpose_b=True), candidates, batch_dims=1)
    return tf.reduce_mean(tf.reduce_logsumexp(scores, axis=1) - scores[:, 0])


def ranking_loss(image_codes: tf.Tensor, text_codes: tf.Tensor, margin: float, shift: float) -> tf.Tensor:
    """The cross-modal ranking loss, in both directions.

    Scores that are at least `margin` below the own pair's count less, by `shift`:

        mean_n (log sum_m exp(s[n, m] - shift [s[n, m] < s[n, n] - margin]) - s[n, n] + margin)

    Every other item has a part in it, not only the hardest, which may well be of the same class.

    Args:
        image_codes: [m, L], of unit length.
        text_codes: [m, L], of unit length, paired by row.
        margin: how far below the own pair's score other scores should be.
        shift: what a score that is far enough below is lowered by.
    """

    def one_direction(scores: tf.Tensor) -> tf.Tensor:
        own = tf.linalg.diag_part(scores)[:, tf.newaxis]
        lowered = scores - shift * tf.cast(scores < own - margin, scores.dtype)
        return tf.reduce_mean(tf.reduce_logsumexp(lowered, axis=1) - own[:, 0] + margin)

    scores = tf.matmul(image_codes, text_codes, transpose_b=True)
    return one_direction(scores) + one_direction(tf.transpose(scores))


def own_first(size: int) -> np.ndarray:
    """Row n holds n, then all others in order, [size, size]."""
    order = np.tile(np.arange(size), (size, 1))
    others = order[~np.eye(size, dtype=bool)].reshape(size, size - 1)
    return np.concatenate([np.arange(size)[:, np.newaxis], others], axis=1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
