"""DGCPN: networks whose codes reproduce how alike two items and their neighbourhoods are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from cmimh_tf.baselines.deep_hasher import (
    DeepHasher,
    check_positive,
    check_shares,
    make_network,
    shuffled_batches,
)
from cmimh_tf.baselines.hasher import check_pairs
from cmimh_tf.optimizers import CoupledSGD
from cmimh_tf.progress import track

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_TEXT_SHARE = 0.01
DEFAULT_COHERENCE_SHARE = 0.3
DEFAULT_NEIGHBOUR_SHARE = 0.4
DEFAULT_HIDDEN_UNITS = 4096
DEFAULT_EPOCHS = 100
PAIR_TARGET = 1.5
BATCH_SIZE = 32
LEARNING_RATE = 0.005
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
DROPOUT = 0.5
# The kernel behind the text network's hidden layer starts from a normal distribution, unlike the image network's.
TEXT_OUTPUT_DEVIATION = 0.3
# All pairs of training rows are compared; a matrix of this many rows has 3.6 GB, and a few of them are needed at once.
MAX_ROWS = 30_000
# Rows of the neighbour graph that are sorted at a time.
_BLOCK_ROWS = 1024


class DGCPN(DeepHasher):
    """Deep graph-neighbour coherence preserving network, on features.

    Each view has a network with one hidden layer and relaxed codes H = tanh(outputs). In each batch the cosines C of
    the codes, across views (it) and within each (ii, tt), fit the target S of `graph_similarity`:

        minimise  mean_n (C_it[n, n] - 1.5)^2                                       pairs
                  + sum of mean_{n != m} (C[n, m] - S[n, m])^2 over C_it, C_ii, C_tt     coherence
                  + |C_it - C_ii|^2 + |C_it - C_tt|^2 + |C_ii - C_tt|^2 + |C_it - C_it'|^2   consistency

    where |.|^2 is a mean over entries. Each batch makes two steps ("half-real, half-binary"): one with relaxed codes
    of both views, and one where each view fits its relaxed codes to the signs of the other's.

    Reference: Yu, Zhou, Zhan and Tao, "Deep Graph-neighbor Coherence Preserving Network for Unsupervised Cross-modal
    Hashing", AAAI 2021.

    Args:
        code_length: number of bits, a positive multiple of 8.
        text_share: the weight of the texts' cosines in the target; the images' have the rest.
        coherence_share: the weight of the neighbourhoods in the target.
        neighbour_share: the neighbours of an item, as a share of the training pairs.
        hidden_units: width of the hidden layers.
        epochs: passes over the pairs.
        seed: of initialisation, batches and dropout.
    """

    def __init__(
        self,
        code_length: int,
        *,
        text_share: float = DEFAULT_TEXT_SHARE,
        coherence_share: float = DEFAULT_COHERENCE_SHARE,
        neighbour_share: float = DEFAULT_NEIGHBOUR_SHARE,
        hidden_units: int = DEFAULT_HIDDEN_UNITS,
        epochs: int = DEFAULT_EPOCHS,
        seed: int = 0,
    ) -> None:
        super().__init__(code_length, seed=seed)
        check_shares(text_share=text_share, coherence_share=coherence_share, neighbour_share=neighbour_share)
        check_positive(hidden_units=hidden_units, epochs=epochs)
        self.text_share = text_share
        self.coherence_share = coherence_share
        self.neighbour_share = neighbour_share
        self.hidden_units = hidden_units
        self.epochs = epochs

    def fit(self, image: Any, text: Any) -> Self:
        image, text = check_pairs(image, text)
        target = graph_similarity(
            joined_cosines(image, text, 1 - self.text_share), self.coherence_share, self.neighbour_share
        )
        random = np.random.default_rng(self.seed)
        networks = [
            make_network(
                features.shape[1],
                [self.hidden_units],
                self.code_length,
                random=random,
                dropout=DROPOUT,
                output_deviation=deviation,
            )
            for features, deviation in ((image, None), (text, TEXT_OUTPUT_DEVIATION))
        ]
        variables = [network.trainable_variables for network in networks]
        optimizers = [CoupledSGD(LEARNING_RATE, MOMENTUM, WEIGHT_DECAY) for _ in networks]
        for optimizer, group in zip(optimizers, variables, strict=True):
            optimizer.build(group)

        # Compiled, an update reads and writes each variable once. It would otherwise take longer than the gradients,
        # as batches are small and layers are wide.
        @tf.function(autograph=False, jit_compile=True)
        def update(gradients: list[list[tf.Tensor]]) -> None:
            for optimizer, group_gradients, group in zip(optimizers, gradients, variables, strict=True):
                optimizer.apply(group_gradients, group)

        views = [tf.constant(features, tf.float32) for features in (image, text)]

        @tf.function(
            input_signature=[tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, None])],
            autograph=False,
        )
        def step(batch: tf.Tensor, batch_target: tf.Tensor) -> None:
            rows = [tf.gather(view, batch) for view in views]

            def relaxed_codes() -> list[tf.Tensor]:
                return [tf.tanh(network(x, training=True)) for network, x in zip(networks, rows, strict=True)]

            with tf.GradientTape() as tape:
                image_codes, text_codes = relaxed_codes()
                loss = similarity_loss(image_codes, text_codes, batch_target)
            update(tape.gradient(loss, variables))
            with tf.GradientTape() as tape:
                image_codes, text_codes = relaxed_codes()
                loss = similarity_loss(image_codes, tf.stop_gradient(tf.sign(text_codes)), batch_target)
                loss += similarity_loss(tf.stop_gradient(tf.sign(image_codes)), text_codes, batch_target)
            update(tape.gradient(loss, variables))

        for _ in track(range(self.epochs), self.epochs, "DGCPN", "epochs"):
            for batch in shuffled_batches(len(image), BATCH_SIZE, random):
                step(tf.constant(batch), tf.constant(target[np.ix_(batch, batch)]))
        self._image_network, self._text_network = networks
        return self


def joined_cosines(image: np.ndarray, text: np.ndarray, image_share: float) -> np.ndarray:
    """a cos(x_n, x_m) + (1 - a) cos(y_n, y_m) for all pairs n, m, float32 [N, N].

    Args:
        image: [N, Di] features x.
        text: [N, Dt] features y, paired by row.
        image_share: a.

    Raises:
        ValueError: if there are more than `MAX_ROWS` rows.
    """
    if len(image) > MAX_ROWS:
        raise ValueError(
            f"`image` must have at most {MAX_ROWS:,} rows, since all of them are compared with each other; fit on a "
            f"sample of the pairs. Received: image.shape={image.shape}."
        )
    joined = np.zeros((len(image), len(image)), np.float32)
    for features, share in ((image, image_share), (text, 1 - image_share)):
        rows = features.astype(np.float32)
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        joined += np.float32(share) * (rows @ rows.T)
    return joined


def drop_small(matrix: np.ndarray, num_kept: int) -> np.ndarray:
    """A copy of `matrix` in which each row keeps its `num_kept` largest entries, and all others are 0."""
    kept = np.zeros_like(matrix)
    for start in range(0, len(matrix), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        largest = np.argpartition(matrix[block], -num_kept, axis=1)[:, -num_kept:]
        np.put_along_axis(kept[block], largest, np.take_along_axis(matrix[block], largest, axis=1), axis=1)
    return kept


def graph_similarity(cosines: np.ndarray, coherence_share: float, neighbour_share: float) -> np.ndarray:
    """S = 2 ((1 - b) C + b 2K P P') - 1, what the cosines of codes fit.

    P[n, m] is the probability of a step from item n to its neighbour m: the K nearest items, in proportion to their
    cosines C. Two items whose steps lead to the same items are alike, whatever their own cosine. The factor 2K, 4,000
    for the 2,000 neighbours of the paper, makes P P' about as large as C.

    Args:
        cosines: C, [N, N].
        coherence_share: b.
        neighbour_share: K / N.

    Returns:
        S, float32 [N, N].
    """
    num_items = len(cosines)
    num_neighbours = int(np.clip(round(neighbour_share * num_items), 1, num_items - 1))
    steps = cosines.copy()
    np.fill_diagonal(steps, -np.inf)
    steps = drop_small(steps, num_neighbours)
    np.maximum(steps, 0, out=steps)
    steps /= np.maximum(steps.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    similarity = steps @ steps.T
    similarity *= 4 * num_neighbours * coherence_share
    similarity += 2 * (1 - coherence_share) * cosines
    return similarity - 1


def similarity_loss(image_codes: tf.Tensor, text_codes: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """The three terms of `DGCPN` for one batch.

    Args:
        image_codes: [m, L] relaxed or binary codes.
        text_codes: [m, L], paired by row.
        target: S, [m, m].
    """
    image_unit, text_unit = tf.math.l2_normalize(image_codes, axis=1), tf.math.l2_normalize(text_codes, axis=1)
    across = tf.matmul(image_unit, text_unit, transpose_b=True)
    images = tf.matmul(image_unit, image_unit, transpose_b=True)
    texts = tf.matmul(text_unit, text_unit, transpose_b=True)
    others = 1 - tf.eye(tf.shape(target)[0])

    def mean_square(difference: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.square(difference))

    pairs = mean_square(tf.linalg.diag_part(across) - PAIR_TARGET)
    coherence = tf.add_n([mean_square(others * (cosines - target)) for cosines in (across, images, texts)])
    consistency = (
        mean_square(across - images)
        + mean_square(across - texts)
        + mean_square(images - texts)
        + mean_square(across - tf.transpose(across))
    )
    return pairs + coherence + consistency
