"""CIRH: codes from a graph network that sees both views, and networks of each view that learn them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.baselines.deep_hasher import (
    DeepHasher,
    FusedAdam,
    check_positive,
    check_shares,
    make_network,
    shuffled_batches,
    torch_dense,
)
from cmimh_tf.baselines.dgcpn import drop_small, joined_cosines
from cmimh_tf.baselines.hasher import check_pairs
from cmimh_tf.progress import track

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_IMAGE_SHARE = 0.1
DEFAULT_DIRECT_SHARE = 0.3
DEFAULT_NEIGHBOUR_SHARE = 0.4
DEFAULT_IDENTITY_WEIGHT = 10.0
DEFAULT_CORRELATION_WEIGHT = 1.0
DEFAULT_HASH_CORRELATION_WEIGHT = 0.01
DEFAULT_HIDDEN_UNITS = 4096
DEFAULT_GRAPH_UNITS = 512
DEFAULT_BATCH_SIZE = 512
DEFAULT_EPOCHS = 100
GRAPH_RATE = 0.001
HASH_RATE = 0.0005
DROPOUT = 0.3
OUTPUT_DEVIATION = 1.0
# What an item and its two nearest neighbours contribute to the features that the graph network sees.
MIXTURE = (0.7, 0.2, 0.1)
# As in PyTorch.
_NORM_EPSILON = 1e-5


class CIRH(DeepHasher):
    """Correlation-identity reconstruction hashing, on features.

    A `GraphNetwork` turns a batch of pairs into common relaxed codes H and codes H_i, H_t of each view. With cos(.)
    the cosines of all rows, S the target of `pair_similarity`, and B = sign(H), it minimises

        l1 (|x_i - x_i'|^2 + |x_t - x_t'|^2)                                identity: features from codes
        + l2 (|cos(H_i) - S|^2 + |cos(H_t) - S|^2 + |cos(H) - S|^2)           correlation
        + |H - B|^2                                                       quantisation

    where |.|^2 is a mean over entries. A network per view, with relaxed codes F = tanh(outputs), learns B:

        |F_i - B|^2 + |F_t - B|^2 + |F_i - F_t|^2 + b (|cos(F_i, F_t) - S|^2 + |cos(F_i) - S|^2 + |cos(F_t) - S|^2)

    Only these networks are kept, since they see one view.

    Reference: Zhu, Wu, Li, Zhang, Guan and Shen, "Work Together: Correlation-Identity Reconstruction Hashing for
    Unsupervised Cross-Modal Retrieval", IEEE TKDE 2022. The settings are its authors' for MS-COCO.

    Args:
        code_length: number of bits, a positive multiple of 8.
        image_share: the weight of the images' cosines in the target; the texts' have the rest.
        direct_share: the weight of the cosines themselves in the target, against their squashed, symmetric form.
        neighbour_share: the entries that are kept per row of the target, as a share of the training pairs.
        identity_weight: l1.
        correlation_weight: l2.
        hash_correlation_weight: b.
        hidden_units: width of the image network's hidden layer. The text network's is as wide as its features, but has
            at least two units per bit.
        graph_units: width of the graph network's hidden layers.
        batch_size: pairs per step.
        epochs: passes over the pairs.
        seed: of initialisation, batches and dropout.
    """

    def __init__(
        self,
        code_length: int,
        *,
        image_share: float = DEFAULT_IMAGE_SHARE,
        direct_share: float = DEFAULT_DIRECT_SHARE,
        neighbour_share: float = DEFAULT_NEIGHBOUR_SHARE,
        identity_weight: float = DEFAULT_IDENTITY_WEIGHT,
        correlation_weight: float = DEFAULT_CORRELATION_WEIGHT,
        hash_correlation_weight: float = DEFAULT_HASH_CORRELATION_WEIGHT,
        hidden_units: int = DEFAULT_HIDDEN_UNITS,
        graph_units: int = DEFAULT_GRAPH_UNITS,
        batch_size: int = DEFAULT_BATCH_SIZE,
        epochs: int = DEFAULT_EPOCHS,
        seed: int = 0,
    ) -> None:
        super().__init__(code_length, seed=seed)
        check_shares(image_share=image_share, direct_share=direct_share, neighbour_share=neighbour_share)
        check_positive(hidden_units=hidden_units, graph_units=graph_units, batch_size=batch_size, epochs=epochs)
        self.image_share = image_share
        self.direct_share = direct_share
        self.neighbour_share = neighbour_share
        self.identity_weight = identity_weight
        self.correlation_weight = correlation_weight
        self.hash_correlation_weight = hash_correlation_weight
        self.hidden_units = hidden_units
        self.graph_units = graph_units
        self.batch_size = batch_size
        self.epochs = epochs

    def fit(self, image: Any, text: Any) -> Self:
        image, text = check_pairs(image, text)
        target = pair_similarity(joined_cosines(image, text, self.image_share), self.direct_share, self.neighbour_share)
        random = np.random.default_rng(self.seed)
        widths = image.shape[1], text.shape[1]
        graph_network = GraphNetwork(widths, self.graph_units, self.code_length, random)
        hash_networks = [
            make_network(
                width,
                [hidden],
                self.code_length,
                random=random,
                unit_inputs=True,
                dropout=DROPOUT,
                output_deviation=OUTPUT_DEVIATION,
            )
            for width, hidden in zip(widths, (self.hidden_units, max(widths[1], 2 * self.code_length)), strict=True)
        ]
        graph_variables = graph_network.trainable_variables
        hash_variables = [variable for network in hash_networks for variable in network.trainable_variables]
        graph_optimizer, hash_optimizer = FusedAdam(GRAPH_RATE, graph_variables), FusedAdam(HASH_RATE, hash_variables)
        views = [tf.constant(features, tf.float32) for features in (image, text)]

        @tf.function(
            input_signature=[tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, None])],
            autograph=False,
        )
        def step(batch: tf.Tensor, batch_target: tf.Tensor) -> None:
            rows = [tf.gather(view, batch) for view in views]
            with tf.GradientTape() as tape:
                graph_loss, codes = self._graph_loss(graph_network, rows, batch_target)
            graph_optimizer.apply(tape.gradient(graph_loss, graph_variables))
            with tf.GradientTape() as tape:
                image_codes, text_codes = (
                    tf.tanh(network(x, training=True)) for network, x in zip(hash_networks, rows, strict=True)
                )
                hash_loss = hash_function_loss(
                    image_codes, text_codes, codes, batch_target, self.hash_correlation_weight
                )
            hash_optimizer.apply(tape.gradient(hash_loss, hash_variables))

        for _ in track(range(self.epochs), self.epochs, "CIRH", "epochs"):
            for batch in shuffled_batches(len(image), self.batch_size, random):
                step(tf.constant(batch), tf.constant(target[np.ix_(batch, batch)]))
        self._image_network, self._text_network = hash_networks
        return self

    def _graph_loss(
        self, network: GraphNetwork, rows: list[tf.Tensor], target: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The graph network's objective for one batch, and the binary codes of its pairs, [m, L] of -1 and 1."""
        mixed = mix_with_neighbours(rows, target)
        own_codes, common, rebuilt = network(mixed, target)
        codes = tf.stop_gradient(tf.sign(common))
        identity = tf.add_n([_mean_square(x - y) for x, y in zip(rebuilt, mixed, strict=True)])
        correlation = tf.add_n([_mean_square(_cosines(h, h) - target) for h in (*own_codes, common)])
        loss = self.identity_weight * identity + self.correlation_weight * correlation + _mean_square(common - codes)
        return loss, codes


class NormalisedDense(keras.layers.Layer):
    """norm(G (x W + b)): a dense layer, a step along a graph if there is one, and batch normalisation.

    Normalisation always takes the statistics of the batch, since the layer is only used in training.

    Args:
        units: width of the outputs.
        input_units: width of the inputs.
        random: the source of the seeds.
    """

    def __init__(self, units: int, input_units: int, random: np.random.Generator) -> None:
        super().__init__()
        self.dense = torch_dense(units, input_units, random)
        self.dense.build([None, input_units])
        self.scale = self.add_weight(shape=[units], initializer="ones", name="scale")
        self.offset = self.add_weight(shape=[units], initializer="zeros", name="offset")
        self.built = True

    def call(self, inputs: tf.Tensor, graph: tf.Tensor | None = None) -> tf.Tensor:
        """[m, input_units] -> [m, units]; `graph` is [m, m]."""
        outputs = self.dense(inputs)
        if graph is not None:
            outputs = tf.matmul(graph, outputs)
        mean, variance = tf.nn.moments(outputs, axes=[0])
        return tf.nn.batch_normalization(outputs, mean, variance, self.offset.value, self.scale.value, _NORM_EPSILON)


class GraphNetwork(keras.Model):
    """Codes of pairs from both views and from the similarities within the batch.

    The features of a view are encoded and scaled to unit length. A graph layer per view then mixes each item with those
    that are similar; a third one does so across both views, where every item is also linked to its pair.

    Args:
        widths: Di and Dt, the widths of the features.
        units: width of the hidden layers.
        code_length: L, the number of bits.
        random: the source of the seeds of all layers.
    """

    def __init__(self, widths: tuple[int, int], units: int, code_length: int, random: np.random.Generator) -> None:
        super().__init__()
        self.encoders = [NormalisedDense(units, width, random) for width in widths]
        self.graph_layers = [NormalisedDense(units, units, random) for _ in widths]
        self.joint_graph_layer = NormalisedDense(units, units, random)
        self.joint_head = NormalisedDense(code_length, units, random)
        self.heads = [NormalisedDense(code_length, 2 * units, random) for _ in widths]
        self.common_head = NormalisedDense(code_length, 3 * code_length, random)
        self.decoders = [NormalisedDense(units, code_length, random) for _ in widths]
        self.outputs = [NormalisedDense(width, units, random) for width in widths]
        self.built = True

    def call(
        self, features: list[tf.Tensor], similarities: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
        """Codes and rebuilt features of a batch.

        Args:
            features: [m, Di] and [m, Dt].
            similarities: S, [m, m].

        Returns:
            The codes of each view, twice [m, L], not squashed; the common codes, [m, L] in (-1, 1); the rebuilt
            features, [m, Di] and [m, Dt].
        """
        encoded = [
            tf.math.l2_normalize(tf.nn.relu(encoder(x)), axis=1)
            for encoder, x in zip(self.encoders, features, strict=True)
        ]
        own = [tf.nn.relu(layer(v, similarities)) for layer, v in zip(self.graph_layers, encoded, strict=True)]
        link = tf.eye(tf.shape(similarities)[0])
        both_views = tf.concat([tf.concat([similarities, link], 1), tf.concat([link, similarities], 1)], 0)
        image, text = tf.split(self.joint_graph_layer(tf.concat(encoded, axis=0), both_views), 2)
        joint = tf.nn.relu(image + text)
        own_codes = [head(tf.concat([v, joint], axis=1)) for head, v in zip(self.heads, own, strict=True)]
        common = tf.tanh(self.common_head(tf.concat([*own_codes, self.joint_head(joint)], axis=1)))
        rebuilt = [
            output(tf.nn.relu(decoder(common + tf.tanh(codes))))
            for decoder, output, codes in zip(self.decoders, self.outputs, own_codes, strict=True)
        ]
        return own_codes, common, rebuilt


def pair_similarity(cosines: np.ndarray, direct_share: float, neighbour_share: float) -> np.ndarray:
    """S = a C + (1 - a) ((T + T') / 2 + I), with T = tanh(C / 2), after each row of C has lost its small entries.

    Args:
        cosines: C, [N, N].
        direct_share: a.
        neighbour_share: the share of the entries of a row that are kept; the others become 0.

    Returns:
        S, float32 [N, N].
    """
    num_kept = int(np.clip(round(neighbour_share * len(cosines)), 1, len(cosines)))
    kept = drop_small(cosines, num_kept)
    squashed = np.tanh(kept / 2)
    squashed = (squashed + squashed.T) / 2
    similarity = direct_share * kept + (1 - direct_share) * squashed
    similarity[np.diag_indices_from(similarity)] += 1 - direct_share
    return similarity


def mix_with_neighbours(rows: list[tf.Tensor], similarities: tf.Tensor) -> list[tf.Tensor]:
    """0.7 x + 0.2 x' + 0.1 x'', where x' and x'' are the items of the batch that are most similar to x.

    Args:
        rows: features of each view, [m, D].
        similarities: S, [m, m]; the largest entry of a row is the item itself. Where the batch has fewer than three
            items, the item itself stands in for the missing neighbours.
    """
    size = tf.shape(similarities)[0]
    nearest = tf.math.top_k(similarities, tf.minimum(size, len(MIXTURE))).indices
    itself = tf.repeat(nearest[:, :1], len(MIXTURE) - tf.shape(nearest)[1], axis=1)
    nearest = tf.concat([nearest, itself], axis=1)
    return [tf.einsum("mkd,k->md", tf.gather(x, nearest), tf.constant(MIXTURE)) for x in rows]


def hash_function_loss(
    image_codes: tf.Tensor, text_codes: tf.Tensor, codes: tf.Tensor, target: tf.Tensor, correlation_weight: float
) -> tf.Tensor:
    """What the networks of the views minimise in one batch.

    Args:
        image_codes: F_i, [m, L] relaxed codes.
        text_codes: F_t, [m, L].
        codes: B, [m, L] of -1 and 1.
        target: S, [m, m].
        correlation_weight: b.
    """
    agreement = _mean_square(image_codes - codes) + _mean_square(text_codes - codes)
    agreement += _mean_square(image_codes - text_codes)
    pairs = ((image_codes, text_codes), (image_codes, image_codes), (text_codes, text_codes))
    correlation = tf.add_n([_mean_square(_cosines(a, b) - target) for a, b in pairs])
    return agreement + correlation_weight * correlation


def _cosines(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.math.l2_normalize(a, axis=1), tf.math.l2_normalize(b, axis=1), transpose_b=True)


def _mean_square(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.square(values))
