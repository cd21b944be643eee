"""BERT's uncased tokenizer, from strings to numbers of word pieces, in core TensorFlow ops.

Wu et al., "Google's Neural Machine Translation System", 2016: a word is cut from the left into the longest pieces
that the vocabulary has; pieces that do not begin a word are written with ## before them.

Core ops, because a graph with the ops of tensorflow-text can only be loaded where that package was imported first:
not in Transform's workers, not by `tf.saved_model.load` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cmimh_tf.features.bert_characters import CHINESE, PRIVATE, replacement_table

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LONGEST_WORD = 100
_CONTINUES = "##"
# Special tokens in a text stand for themselves. Private characters carry them past the splitting.
_MARKS = tuple(chr(PRIVATE[0][0] + position) for position in range(len(SPECIAL_TOKENS)))
_OTHER_PRIVATE = chr(PRIVATE[0][1])


class WordPieceTokenizer(tf.Module):
    """Maps string [B] to ragged int32 [B, pieces], with [CLS] first and [SEP] last.

    Args:
        vocabulary: the pieces in the order of their numbers; must have the special tokens.
        max_pieces: longer texts are cut off, [CLS] and [SEP] included.

    Raises:
        ValueError: if a special token is missing or a piece repeats.
    """

    def __init__(self, vocabulary: Sequence[str], max_pieces: int):
        super().__init__(name="word_piece_tokenizer")
        numbers = {piece: number for number, piece in enumerate(vocabulary)}
        for token in SPECIAL_TOKENS:
            if token not in numbers:
                raise ValueError(f"`vocabulary` must have {token}. Received: {len(vocabulary)} pieces without it.")
        if len(numbers) != len(vocabulary):
            raise ValueError(
                f"`vocabulary` must not repeat a piece. Received: {len(numbers)} different ones of {len(vocabulary)}."
            )
        self.max_pieces = max_pieces
        self._unknown, self._first, self._last = (numbers[token] for token in ("[UNK]", "[CLS]", "[SEP]"))
        self._longest_piece = max(len(piece) for piece in vocabulary)
        numbers.update({mark: numbers[token] for mark, token in zip(_MARKS, SPECIAL_TOKENS, strict=True)})
        self._pieces = _table(list(numbers), list(numbers.values()), default=-1)
        replacements = replacement_table()
        self._characters = _table(list(replacements), list(range(len(replacements))), default=-1)
        # In a tuple, which hides it from tracking.
        self._replacements = tuple(replacements.values())

    def __call__(self, texts: Any) -> tf.RaggedTensor:
        words = self.words(texts)
        numbers, word_rows = self._pieces_of_words(words.flat_values)
        text_rows = tf.gather(words.value_rowids(), word_rows)
        pieces = tf.RaggedTensor.from_value_rowids(numbers, text_rows, nrows=words.nrows(), validate=False)
        pieces = pieces[:, : self.max_pieces - 2]
        edge = tf.ones([words.nrows(), 1], tf.int32)
        return tf.concat([self._first * edge, pieces, self._last * edge], axis=1)

    def words(self, texts: Any) -> tf.RaggedTensor:
        """string [B] -> ragged string [B, words]: lower case, without accents, punctuation apart."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        texts = tf.strings.regex_replace(texts, f"[{_MARKS[0]}-{_MARKS[-1]}]", _OTHER_PRIVATE)
        for token, mark in zip(SPECIAL_TOKENS, _MARKS, strict=True):
            texts = tf.strings.regex_replace(texts, rf"\[{token[1:-1]}\]", f" {mark} ")
        texts = tf.strings.regex_replace(texts, _character_class(CHINESE[:-2]), r" \0 ")
        private = ((ord(_MARKS[-1]) + 1, PRIVATE[0][1]), *PRIVATE[1:])
        texts = tf.strings.regex_replace(texts, _character_class(private), "")
        characters = tf.strings.unicode_split(texts, "UTF-8")
        rows = self._characters.lookup(characters.flat_values)
        replaced = tf.gather(tf.constant(self._replacements), tf.maximum(rows, 0))
        characters = characters.with_flat_values(tf.where(rows < 0, characters.flat_values, replaced))
        return tf.strings.split(tf.strings.reduce_join(characters, axis=1))

    def _pieces_of_words(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """string [W] -> the numbers int32 [P] of all pieces in order, and the row int64 [P] of each one's word."""
        whole = self._pieces.lookup(words)
        is_known = whole >= 0
        known_rows = tf.where(is_known)[:, 0]
        other_rows = tf.where(~is_known)[:, 0]
        cut = self._cut(tf.gather(words, other_rows))
        found = tf.where(cut >= 0)
        rows = tf.concat([known_rows, tf.gather(other_rows, found[:, 0])], axis=0)
        positions = tf.concat([tf.zeros_like(known_rows), found[:, 1]], axis=0)
        numbers = tf.concat([tf.boolean_mask(whole, is_known), tf.gather_nd(cut, found)], axis=0)
        order = tf.argsort(rows * (_LONGEST_WORD + 1) + positions)
        return tf.gather(numbers, order), tf.gather(rows, order)

    def _cut(self, words: tf.Tensor) -> tf.Tensor:
        """string [W] -> int32 [W, steps], the numbers of each word's pieces in order, with -1 between and after them.

        All words are cut at once, one piece a step. A word with a part that is no piece is [UNK] as a whole.
        """
        lengths = tf.strings.length(words, unit="UTF8_CHAR")
        is_unknown = lengths > _LONGEST_WORD
        sizes = tf.range(self._longest_piece, 0, -1)

        def is_unfinished(starts: tf.Tensor, numbers: tf.Tensor, is_unknown: tf.Tensor) -> tf.Tensor:
            del numbers, is_unknown
            return tf.reduce_any(starts < lengths)

        def cut_one_piece(starts: tf.Tensor, numbers: tf.Tensor, is_unknown: tf.Tensor) -> tuple[tf.Tensor, ...]:
            at, size = starts[:, None] + tf.zeros_like(sizes), tf.zeros_like(starts)[:, None] + sizes
            parts = tf.strings.substr(words[:, None], at, size, unit="UTF8_CHAR")
            found = self._pieces.lookup(tf.strings.join([tf.where(at > 0, _CONTINUES, ""), parts]))
            longest = tf.argmax(tf.cast(found >= 0, tf.int32), axis=1)
            is_cut = starts < lengths
            number = tf.where(is_cut, tf.gather(found, longest, batch_dims=1), -1)
            # A size beyond the word's end gives the same piece as the size that fits.
            ends = tf.minimum(starts + tf.gather(sizes, longest), lengths)
            starts = tf.where(number >= 0, ends, lengths)
            return starts, tf.concat([numbers, number[:, None]], axis=1), is_unknown | (is_cut & (number < 0))

        _, numbers, is_unknown = tf.while_loop(
            is_unfinished,
            cut_one_piece,
            # The first column is that of [UNK].
            (tf.where(is_unknown, lengths, 0), tf.fill([tf.size(words), 1], -1), is_unknown),
            shape_invariants=(tf.TensorShape([None]), tf.TensorShape([None, None]), tf.TensorShape([None])),
        )
        unknown = tf.where(tf.range(tf.shape(numbers)[1]) == 0, self._unknown, -1)
        return tf.where(is_unknown[:, None], unknown[None], numbers)


def _character_class(ranges: Sequence[tuple[int, int]]) -> str:
    return "[" + "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in ranges) + "]"


def _table(keys: list[str], values: list[int], default: int) -> tf.lookup.StaticHashTable:
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values, tf.int32))
    return tf.lookup.StaticHashTable(initializer, default)
