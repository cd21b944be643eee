"""Texts as the tags of a fixed vocabulary that they hold, as the 1,386 of MIR-Flickr25k and the 1,000 of NUS-WIDE."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """The tags of a file, one a line. What follows a space is left out: the official lists have counts there.

    Raises:
        ValueError: if it is empty or repeats a tag, with the line.
    """
    tags: dict[str, int] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        tag = line.split()[0].lower()
        if tag in tags:
            raise ValueError(
                f"{os.fspath(path)}, line {number}: tags must not repeat. Received: {tag!r}, as in line {tags[tag]}."
            )
        tags[tag] = number
    if not tags:
        raise ValueError(f"{os.fspath(path)}: must hold a tag in each line. Received: an empty file.")
    return list(tags)


class Tags(tf.Module):
    """Maps string [B] to float32 [B, dim] of 0 and 1: whether a text holds a tag.

    Tags are separated by spaces or commas, and compared in lower case. A text with none of the tags is all 0.

    Args:
        vocabulary: the tags in the order of their columns, in lower case.

    Example:
        >>> Tags(["sea", "50mm"])(["Sea,canon 50mm", "dog"]).numpy().tolist()
        [[1.0, 1.0], [0.0, 0.0]]
    """

    def __init__(self, vocabulary: Sequence[str]):
        super().__init__(name="tags")
        self.dim = len(vocabulary)
        columns = tf.range(self.dim, dtype=tf.int64)
        initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(list(vocabulary)), columns)
        self._columns = tf.lookup.StaticHashTable(initializer, default_value=self.dim)

    def __call__(self, texts: Any) -> tf.Tensor:
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace", replacement_char=ord(" "))
        # `lower` drops what follows a zero byte.
        separated = tf.strings.regex_replace(texts, r"[,\x00]+", " ")
        tags = tf.strings.split(tf.strings.lower(separated, encoding="utf-8"))
        columns = self._columns.lookup(tags.flat_values)
        found = tf.scatter_nd(
            tf.stack([tags.value_rowids(), columns], axis=1),
            tf.ones_like(columns, tf.float32),
            tf.stack([tags.nrows(), self.dim + 1]),
        )
        return tf.ensure_shape(tf.minimum(found[:, :-1], 1.0), [None, self.dim])
