"""What BERT's uncased tokenizer makes of each character, before words are cut into pieces.

A text becomes words in one step: every character is replaced by a string, and the result is split at spaces.

    control characters, accents (marks without width)    nothing
    spaces, tabs, line ends                              a space
    punctuation, Chinese characters                      themselves with spaces around
    letters with accents, capitals                       the canonical decomposition without accents, in lower case

These are the rules of BertNormalizer and BertPreTokenizer in the library `tokenizers`. It knows the categories of
Unicode 8, and Python those of a later version: 560 of 1,112,064 characters, all of them newer, fare differently.
"""

from __future__ import annotations

import string
import unicodedata

# The ranges of the original tokenizer, with its slip in the sixth: B920 for B820.
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
# Planes and an area that Unicode leaves to private use: all removed.
PRIVATE = ((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))

# Where all others are: between the Chinese ones, surrogates and private use, on the first planes and the last but two.
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


def replacement_table() -> dict[str, str]:
    """Every character that is replaced by something else, but for Chinese and private ones, which are whole ranges."""
    characters = [chr(number) for first, last in _CHARACTERS for number in range(first, last + 1)]
    replaced = {character: replace_character(character) for character in characters}
    return {character: replacement for character, replacement in replaced.items() if replacement != character}


def replace_character(character: str) -> str:
    """One character's replacement."""
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
    # Of the ASCII symbols all count, also those that Unicode calls symbols, such as $ and +.
    return character in string.punctuation or unicodedata.category(character).startswith("P")
