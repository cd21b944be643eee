"""BERT's uncased tokenizer, from strings to ids of word pieces, in core TensorFlow ops.

Wu et al., "Google's Neural Machine Translation System", 2016: a word is cut from the left into the longest pieces of
the vocabulary. Pieces that do not begin a word start with ##.

Before that, a text becomes words: every character is replaced by a string, and the result is split at spaces.

    control characters, accents (nonspacing marks)       removed
    spaces, tabs, line ends                              a space
    punctuation, Chinese characters                      surrounded by spaces
    letters with accents, capitals                       canonical decomposition without accents, in lower case

These are the rules of BertNormalizer and BertPreTokenizer in the library `tokenizers`, which uses the categories of
Unicode 8. Python uses a later version, so 560 of 1,112,064 characters, all of them newer, are treated differently.

Only core ops are used because a graph with ops of tensorflow-text can only be loaded where that package was imported
before. Transform's workers and `tf.saved_model.load` do not import it.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# The ranges of the original tokenizer, including its typo in the sixth: B920 instead of B820.
CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
# Private use areas of Unicode: these characters are removed.
PRIVATE = ((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))

# All other assigned characters: without the Chinese ranges, surrogates and private use areas.
_CHARACTERS = (
    (0, 0x33FF),
    (0x4DC0, 0x4DFF),
    (0xA000, 0xD7FF),
    (0xF900, 0x1FFFF),
    (0x2F800, 0x2FA1F),
    (0xE0000, 0xE0FFF),
)
_SPACES_AMONG_CONTROLS = "\t\n\r"
_REMOVED_CATEGORIES = ("Cc", "Cf", "Co")
_REPLACEMENT_CHARACTER = "\ufffd"

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LONGEST_WORD = 100
_CONTINUES = "##"
# Special tokens in a text are kept. Private characters represent them while the text is split.
_MARKS = tuple(chr(PRIVATE[0][0] + position) for position in range(len(SPECIAL_TOKENS)))
_OTHER_PRIVATE = chr(PRIVATE[0][1])


class WordPieceTokenizer(tf.Module):
    """Maps string [B] to ragged int32 [B, pieces], with [CLS] first and [SEP] last.

    Args:
        vocabulary: the pieces in the order of their ids, including the special tokens.
        max_pieces: longer texts are truncated to this many pieces, including [CLS] and [SEP].

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
        # In a tuple: tf.Module does not track it.
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
        """string [B] -> ragged string [B, words]: in lower case, without accents; punctuation marks are words."""
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
        """string [W] -> ids int32 [P] of all pieces in order, and int64 [P], the row of each piece's word."""
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
        """string [W] -> int32 [W, steps], the ids of each word's pieces in order, with -1 between and after them.

        All words are cut in parallel, one piece per step. A word that cannot be cut into pieces becomes [UNK].
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
            # A size beyond the end of the word gives the same piece as the exact size.
            ends = tf.minimum(starts + tf.gather(sizes, longest), lengths)
            starts = tf.where(number >= 0, ends, lengths)
            return starts, tf.concat([numbers, number[:, None]], axis=1), is_unknown | (is_cut & (number < 0))

        _, numbers, is_unknown = tf.while_loop(
            is_unfinished,
            cut_one_piece,
            # The first column is for [UNK].
            (tf.where(is_unknown, lengths, 0), tf.fill([tf.size(words), 1], -1), is_unknown),
            shape_invariants=(tf.TensorShape([None]), tf.TensorShape([None, None]), tf.TensorShape([None])),
        )
        unknown = tf.where(tf.range(tf.shape(numbers)[1]) == 0, self._unknown, -1)
        return tf.where(is_unknown[:, None], unknown[None], numbers)


def replacement_table() -> dict[str, str]:
    """Maps every character that is replaced to its replacement, except Chinese and private ranges."""
    characters = [chr(number) for first, last in _CHARACTERS for number in range(first, last + 1)]
    replaced = {character: replace_character(character) for character in characters}
    return {character: replacement for character, replacement in replaced.items() if replacement != character}


def replace_character(character: str) -> str:
    """The replacement of one character."""
    if character in _SPACES_AMONG_CONTROLS:
        return " "
    if character in (_REPLACEMENT_CHARACTER, "\0") or unicodedata.category(character) in _REMOVED_CATEGORIES:
        return ""
    if character.isspace():
        return " "
    decomposed = unicodedata.normalize("NFD", character)
    kept = [part.lower() for part in decomposed if unicodedata.category(part) != "Mn"]
    spaced = [f" {part} " if _is_punctuation(part) else part for part in "".join(kept)]
    is_chinese = any(first <= ord(character) <= last for first, last in CHINESE)
    return f" {''.join(spaced)} " if is_chinese else "".join(spaced)


def _is_punctuation(character: str) -> bool:
    # All ASCII symbols count, including those in Unicode's symbol categories, such as $ and +.
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def _character_class(ranges: Sequence[tuple[int, int]]) -> str:
    return "[" + "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in ranges) + "]"


def _table(keys: list[str], values: list[int], default: int) -> tf.lookup.StaticHashTable:
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values, tf.int32))
    return tf.lookup.StaticHashTable(initializer, default)
