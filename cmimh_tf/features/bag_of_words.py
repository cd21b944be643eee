"""Texts as vectors of the words, or of the tags of a fixed vocabulary, that they contain; in TensorFlow graph code."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

_WEIGHTINGS = ("binary", "tfidf")


def tokenize(texts: Any) -> tf.RaggedTensor:
    """Words of UTF-8 texts: in lower case, split at everything except letters, digits and accents.

    Invalid UTF-8 counts as a space. Scripts without spaces are not segmented.

    Args:
        texts: string [N].

    Returns:
        Ragged string [N, words]; a text without words has none.

    Example:
        >>> tokenize(["Côte d’Ivoire_Flag"]).to_list()
        [[b'c\\xc3\\xb4te', b'd', b'ivoire', b'flag']]
    """
    texts = tf.convert_to_tensor(texts, tf.string)
    if texts.shape.rank != 1:
        raise ValueError(f"`texts` must have shape [N]. Received: texts.shape={texts.shape}.")
    # Later steps reject invalid UTF-8, or drop everything after it.
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace", replacement_char=ord(" "))
    # Before `lower`, which drops everything after a zero byte.
    spaced = tf.strings.regex_replace(texts, r"[^\pL\pM\pN]+", " ")
    return tf.strings.split(tf.strings.lower(spaced, encoding="utf-8"))


def fit_vocabulary(texts: Any, *, min_count: int = 1, max_size: int | None = None) -> tuple[list[str], list[int]]:
    """The words of `texts`: the most frequent first, equally frequent ones in alphabetical order.

    Args:
        texts: string [N].
        min_count: the least number of texts that must contain a word.
        max_size: the largest number of words; None for all.

    Returns:
        The words, and for each word the number of texts that contain it.
    """
    for name, value in {"min_count": min_count, "max_size": max_size}.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}.")
    counts = Counter(word.decode("utf-8") for words in tokenize(texts).to_list() for word in set(words))
    kept = sorted((-count, word) for word, count in counts.items() if count >= min_count)[:max_size]
    return [word for _, word in kept], [-count for count, _ in kept]


class BagOfWords(tf.Module):
    """Maps string [N] to float32 [N, dim], one column per word of a vocabulary. Other words are ignored.

    Column v is `weights[v]` if the text contains word v (`weighting="binary"`), or `weights[v]` times the number of its
    occurrences ("tfidf"). TensorFlow tracks the module, so a SavedModel can contain it. A preprocessing function of
    tensorflow_transform must create it inside the function.

    Args:
        vocabulary: the words in the order of their columns, as `tokenize` makes them.
        weights: [V] positive numbers, one per word; None for ones.
        weighting: "binary" or "tfidf".
        unit_length: whether to scale rows to length 1, except rows of zeros.
        unknown_column: whether to add a last column that is 1 if a text contains no word of the vocabulary, so that no
            row is all 0.

    Raises:
        ValueError: if the vocabulary is empty, repeats a word, or has a word that `tokenize` never yields.

    Example:
        >>> BagOfWords(["cat", "dog"])(["A cat, a CAT!", "bird"]).numpy().tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        weights: Sequence[float] | None = None,
        weighting: str = "binary",
        unit_length: bool = False,
        unknown_column: bool = False,
    ) -> None:
        super().__init__(name="bag_of_words")
        # The module may be created while a graph is traced, and the check needs values.
        with tf.init_scope():
            _check_vocabulary(vocabulary)
        if weighting not in _WEIGHTINGS:
            raise ValueError(f"`weighting` must be one of {_WEIGHTINGS}. Received: weighting={weighting!r}.")
        weights = [1.0] * len(vocabulary) if weights is None else [float(weight) for weight in weights]
        if len(weights) != len(vocabulary) or not all(0 < weight < np.inf for weight in weights):
            raise ValueError(
                f"`weights` must be {len(vocabulary)} positive numbers, one per word. Received: {len(weights)} "
                f"from {min(weights, default=None)} to {max(weights, default=None)}."
            )
        # Tuples because tf.Module wraps lists.
        self.vocabulary = tuple(vocabulary)
        self.weights = tuple(weights)
        self.weighting = weighting
        self.unit_length = unit_length
        self.unknown_column = unknown_column
        columns = tf.range(len(vocabulary), dtype=tf.int64)
        initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(self.vocabulary), columns)
        self._columns = tf.lookup.StaticHashTable(initializer, default_value=len(vocabulary))

    @classmethod
    def fit(
        cls,
        texts: Any,
        *,
        min_count: int = 1,
        max_size: int | None = None,
        weighting: str = "binary",
        unit_length: bool = False,
        unknown_column: bool = False,
    ) -> BagOfWords:
        """Makes the vocabulary from `texts`, string [N].

        With "tfidf", the weight of a word that occurs in n of the N texts is ln((1 + N) / (1 + n)) + 1.
        """
        vocabulary, counts = fit_vocabulary(texts, min_count=min_count, max_size=max_size)
        num_texts = len(texts)
        idf = [float(np.log((1 + num_texts) / (1 + count))) + 1 for count in counts]
        return cls(
            vocabulary,
            weights=idf if weighting == "tfidf" else None,
            weighting=weighting,
            unit_length=unit_length,
            unknown_column=unknown_column,
        )

    @property
    def dim(self) -> int:
        """The number of columns."""
        return len(self.vocabulary) + self.unknown_column

    def __call__(self, texts: Any) -> tf.Tensor:
        words = tokenize(texts)
        columns = self._columns.lookup(words.flat_values)
        # Other words are counted in a last column, which is removed.
        counts = tf.scatter_nd(
            tf.stack([words.value_rowids(), columns], axis=1),
            tf.ones_like(columns, tf.float32),
            tf.stack([words.nrows(), len(self.vocabulary) + 1]),
        )[:, :-1]
        if self.weighting == "binary":
            counts = tf.minimum(counts, 1.0)
        vectors = counts * tf.constant(self.weights, tf.float32)
        if self.unit_length:
            vectors = tf.math.divide_no_nan(vectors, tf.norm(vectors, axis=1, keepdims=True))
        if self.unknown_column:
            empty = tf.logical_not(tf.reduce_any(vectors > 0, axis=1, keepdims=True))
            vectors = tf.concat([vectors, tf.cast(empty, tf.float32)], axis=1)
        return tf.ensure_shape(vectors, [None, self.dim])


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """Reads one tag per line. Text after a space is ignored: the official lists have counts there.

    Raises:
        ValueError: if the file is empty or repeats a tag; the message names the line.
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
    """Maps string [B] to float32 [B, dim] of 0 and 1: whether a text contains each tag of a fixed vocabulary, such as
    the 1,386 tags of MIR-Flickr25k or the 1,000 tags of NUS-WIDE.

    Tags are separated by spaces or commas, and compared in lower case. The vector of a text without any tag is 0.

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
        # `lower` drops everything after a zero byte.
        separated = tf.strings.regex_replace(texts, r"[,\x00]+", " ")
        tags = tf.strings.split(tf.strings.lower(separated, encoding="utf-8"))
        columns = self._columns.lookup(tags.flat_values)
        found = tf.scatter_nd(
            tf.stack([tags.value_rowids(), columns], axis=1),
            tf.ones_like(columns, tf.float32),
            tf.stack([tags.nrows(), self.dim + 1]),
        )
        return tf.ensure_shape(tf.minimum(found[:, :-1], 1.0), [None, self.dim])


def _check_vocabulary(vocabulary: Sequence[str]) -> None:
    if isinstance(vocabulary, str) or not len(vocabulary):
        raise ValueError(f"`vocabulary` must hold at least one word. Received: vocabulary={vocabulary!r}.")
    repeated = [word for word, count in Counter(vocabulary).items() if count > 1]
    if repeated:
        raise ValueError(f"`vocabulary` must not repeat a word. Received: {repeated[0]!r} more than once.")
    for word, tokens in zip(vocabulary, tokenize(list(vocabulary)).to_list(), strict=True):
        if tokens != [word.encode("utf-8")]:
            raise ValueError(
                f"`vocabulary` must hold words as `tokenize` yields them. Received: {word!r}, which becomes "
                f"{[token.decode('utf-8') for token in tokens]}."
            )
