"""Texts as vectors of the words that they hold, in TensorFlow graph code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_WEIGHTINGS = ("binary", "tfidf")


def tokenize(texts: Any) -> tf.RaggedTensor:
    """Words of UTF-8 texts: lower case, split wherever there is neither a letter, a digit nor an accent.

    Bytes that are not UTF-8 count as spaces. A script without spaces is not segmented.

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
    # The later steps refuse bytes that are not UTF-8, or drop what follows them.
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace", replacement_char=ord(" "))
    # In this order, because `lower` drops what follows a zero byte.
    spaced = tf.strings.regex_replace(texts, r"[^\pL\pM\pN]+", " ")
    return tf.strings.split(tf.strings.lower(spaced, encoding="utf-8"))


def fit_vocabulary(texts: Any, *, min_count: int = 1, max_size: int | None = None) -> tuple[list[str], list[int]]:
    """The words of `texts`, those in most texts first, equal ones in the order of their characters.

    Args:
        texts: string [N].
        min_count: the least number of texts that a word must be in.
        max_size: the most words to keep; all if None.

    Returns:
        The words, and for each the number of texts that it is in.
    """
    for name, value in {"min_count": min_count, "max_size": max_size}.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}.")
    counts = Counter(word.decode("utf-8") for words in tokenize(texts).to_list() for word in set(words))
    kept = sorted((-count, word) for word, count in counts.items() if count >= min_count)[:max_size]
    return [word for _, word in kept], [-count for count, _ in kept]


class BagOfWords(tf.Module):
    """Maps string [N] to float32 [N, dim], one column for each word of a vocabulary. Other words are ignored.

    Column v is `weights[v]` times 1 if the text holds word v (`weighting="binary"`) or times the number of
    times that it does ("tfidf"). It is tracked by TensorFlow, so it can be part of what `tf.saved_model.save`
    writes. A preprocessing function of tensorflow_transform has to make it inside the function.

    Args:
        vocabulary: the words in the order of their columns, as `tokenize` makes them.
        weights: [V] positive numbers, one for each word; 1 if None.
        weighting: "binary" or "tfidf".
        unit_length: whether to scale rows that are not all 0 to length 1.
        unknown_column: whether a last column is 1 where a text holds no word of the vocabulary, so that no
            row is all 0.

    Raises:
        ValueError: if the vocabulary is empty, repeats a word or has one that no text can hold.

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
        # It may be made while a graph is traced, and the check needs values.
        with tf.init_scope():
            _check_vocabulary(vocabulary)
        if weighting not in _WEIGHTINGS:
            raise ValueError(f"`weighting` must be one of {_WEIGHTINGS}. Received: weighting={weighting!r}.")
        weights = [1.0] * len(vocabulary) if weights is None else [float(weight) for weight in weights]
        if len(weights) != len(vocabulary) or not all(0 < weight < np.inf for weight in weights):
            raise ValueError(
                f"`weights` must be {len(vocabulary)} positive numbers, one a word. Received: {len(weights)} "
                f"from {min(weights, default=None)} to {max(weights, default=None)}."
            )
        # Tuples, because lists would be wrapped by tf.Module's tracking.
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
        """Takes the vocabulary from `texts`, string [N].

        For "tfidf" a word in n of the N texts has the weight ln((1 + N) / (1 + n)) + 1.
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
        # Other words fall into a last column, which is cut off.
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


def _check_vocabulary(vocabulary: Sequence[str]) -> None:
    if isinstance(vocabulary, str) or not len(vocabulary):
        raise ValueError(f"`vocabulary` must hold at least one word. Received: vocabulary={vocabulary!r}.")
    repeated = [word for word, count in Counter(vocabulary).items() if count > 1]
    if repeated:
        raise ValueError(f"`vocabulary` must not repeat a word. Received: {repeated[0]!r} more than once.")
    for word, tokens in zip(vocabulary, tokenize(list(vocabulary)).to_list(), strict=True):
        if tokens != [word.encode("utf-8")]:
            raise ValueError(
                f"`vocabulary` must hold words as `tokenize` makes them. Received: {word!r}, which becomes "
                f"{[token.decode('utf-8') for token in tokens]}."
            )
