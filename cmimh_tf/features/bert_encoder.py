"""The transformer encoder of BERT (Devlin et al., NAACL 2019), from the weights of a PyTorch model."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

_EPSILON = 1e-12
# What is added to the scores of padding: small enough to vanish, without the NaN that infinities bring.
_FORBIDDEN = -1e9


class BertEncoder(tf.Module):
    """Maps numbers of word pieces to states.

    Args:
        weights: by the names of transformers' BertModel.
        num_heads: of each attention; the width must be a multiple of it.

    Raises:
        ValueError: if a weight is missing.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], num_heads: int):
        super().__init__(name="bert_encoder")
        self._num_heads = num_heads
        reader = _Reader(weights)
        self._words = reader.variable("embeddings.word_embeddings.weight")
        # All pieces are of the first type, which may as well be added to the positions.
        types = reader.array("embeddings.token_type_embeddings.weight")
        positions = reader.array("embeddings.position_embeddings.weight")
        self._positions = tf.Variable(positions + types[0], trainable=False)
        self._norm = reader.norm("embeddings.LayerNorm")
        self.units = self._words.shape[1]
        count = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))
        self._layers = [reader.layer(f"encoder.layer.{number}.") for number in range(count)]

    def __call__(self, pieces: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """The states of the last layer.

        Args:
            pieces: int [B, length].
            mask: float [B, length], 1 for a piece and 0 for padding.

        Returns:
            float32 [B, length, units]; rows of padding mean nothing.
        """
        states = tf.gather(self._words, pieces) + self._positions[: tf.shape(pieces)[1]]
        states = _normalise(states, self._norm)
        bias = (1.0 - mask)[:, None, None, :] * _FORBIDDEN
        for layer in self._layers:
            attended = _dense(self._attend(states, bias, layer["qkv"]), layer["attention"])
            states = _normalise(states + attended, layer["attention_norm"])
            inner = tf.nn.gelu(_dense(states, layer["inner"]), approximate=False)
            states = _normalise(states + _dense(inner, layer["outer"]), layer["outer_norm"])
        return states

    def _attend(self, states: tf.Tensor, bias: tf.Tensor, qkv: list[tf.Variable]) -> tf.Tensor:
        """softmax(Q K' / sqrt(d) + bias) V for each head, the heads side by side: [B, length, units]."""
        batch, length = tf.unstack(tf.shape(states)[:2])
        width = self.units // self._num_heads
        heads = tf.reshape(_dense(states, qkv), [batch, length, 3, self._num_heads, width])
        queries, keys, values = tf.unstack(tf.transpose(heads, [2, 0, 3, 1, 4]))
        scores = tf.matmul(queries, keys, transpose_b=True) / math.sqrt(width) + bias
        mixed = tf.matmul(tf.nn.softmax(scores), values)
        return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [batch, length, self.units])


class _Reader:
    """Variables from a PyTorch model's arrays."""

    def __init__(self, weights: Mapping[str, np.ndarray]):
        self._weights = weights

    def array(self, name: str) -> np.ndarray:
        if name not in self._weights:
            raise ValueError(f"`weights` must have {name}. Received: {len(self._weights)} others.")
        return self._weights[name].astype(np.float32)

    def variable(self, name: str) -> tf.Variable:
        return tf.Variable(self.array(name), trainable=False)

    def norm(self, name: str) -> list[tf.Variable]:
        return [self.variable(f"{name}.weight"), self.variable(f"{name}.bias")]

    def dense(self, *names: str) -> list[tf.Variable]:
        """Kernel [in, out] and bias [out] of a layer, or of several with the same input side by side."""
        kernel = np.concatenate([self.array(f"{name}.weight").T for name in names], axis=1)
        bias = np.concatenate([self.array(f"{name}.bias") for name in names])
        return [tf.Variable(kernel, trainable=False), tf.Variable(bias, trainable=False)]

    def layer(self, name: str) -> dict[str, list[tf.Variable]]:
        return {
            # One product for the three.
            "qkv": self.dense(*(f"{name}attention.self.{part}" for part in ("query", "key", "value"))),
            "attention": self.dense(f"{name}attention.output.dense"),
            "attention_norm": self.norm(f"{name}attention.output.LayerNorm"),
            "inner": self.dense(f"{name}intermediate.dense"),
            "outer": self.dense(f"{name}output.dense"),
            "outer_norm": self.norm(f"{name}output.LayerNorm"),
        }


def _dense(x: tf.Tensor, weights: list[tf.Variable]) -> tf.Tensor:
    kernel, bias = weights
    return tf.matmul(x, kernel) + bias


def _normalise(x: tf.Tensor, weights: list[tf.Variable]) -> tf.Tensor:
    scale, offset = weights
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + _EPSILON) * scale + offset
