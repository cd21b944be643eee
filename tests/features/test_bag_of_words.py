"""Bags of words, and tags of a fixed vocabulary."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.features import BagOfWords, fit_vocabulary, tokenize
from cmimh_tf.features.bag_of_words import Tags, read_vocabulary


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A cat, a CAT!", ["a", "cat", "a", "cat"]),
        ("flag-ac_x  y\t\nz", ["flag", "ac", "x", "y", "z"]),
        ("Côte d’Ivoire ÅLAND", ["côte", "d", "ivoire", "åland"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("हिन्दी ΩΜΈΓΑ 東京 7½", ["हिन्दी", "ωμέγα", "東京", "7½"]),
        ("😀🐶 dog", ["dog"]),
        ("", []),
        (" ,;! ", []),
        (b"caf\xe9 bar\xff", ["caf", "bar"]),
        ("a\0b", ["a", "b"]),
    ],
)
def test_words_of_a_text(text: str | bytes, words: list[str]) -> None:
    assert tokenize([text]).to_list() == [[word.encode() for word in words]]


def test_tokenize_keeps_texts_apart_and_refuses_other_ranks() -> None:
    assert tokenize(["a b", "", "c"]).to_list() == [[b"a", b"b"], [], [b"c"]]
    assert tokenize(tf.constant([], tf.string)).to_list() == []
    with pytest.raises(ValueError, match=r"`texts` must have shape \[N\]\. Received: texts\.shape=\(1, 1\)"):
        tokenize([["a"]])


def test_vocabulary_is_ordered_by_texts_then_characters() -> None:
    texts = ["b a a a", "b c", "b é c", "z"]
    assert fit_vocabulary(texts) == (["b", "c", "a", "z", "é"], [3, 2, 1, 1, 1])
    assert fit_vocabulary(texts[::-1]) == fit_vocabulary(texts)
    assert fit_vocabulary(texts, min_count=2) == (["b", "c"], [3, 2])
    assert fit_vocabulary(texts, max_size=3)[0] == ["b", "c", "a"]
    assert fit_vocabulary(texts, min_count=9) == ([], [])


@pytest.mark.parametrize("options", [{"min_count": 0}, {"max_size": 0}, {"min_count": 1.5}, {"max_size": True}])
def test_vocabulary_limits_must_be_positive(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(options))}` must be a positive integer. Received: "):
        fit_vocabulary(["a"], **options)


def test_binary_rows_by_hand() -> None:
    bag = BagOfWords(["cat", "dog", "é"])
    rows = bag(["A cat, a CAT!", "dog É cat", "bird", ""]).numpy()
    expected = np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 0, 0]], np.float32)
    np.testing.assert_array_equal(rows, expected, strict=True)


def test_tfidf_rows_by_hand() -> None:
    # Of N = 3 texts, "a" is in 3 and "b" in 1.
    bag = BagOfWords.fit(["a", "a b b", "a"], weighting="tfidf")
    idf_a, idf_b = 1.0, np.log(4 / 2) + 1
    assert bag.vocabulary == ("a", "b")
    np.testing.assert_allclose(bag(["a", "b a b", "c"]), [[idf_a, 0], [idf_a, 2 * idf_b], [0, 0]], rtol=1e-6)


def test_unit_length_rows_and_the_column_of_unknown_words() -> None:
    bag = BagOfWords(["a", "b"], unit_length=True, unknown_column=True)
    assert bag.dim == 3
    half = np.sqrt(0.5)
    rows = bag(["a b", "a x", "x y", ""]).numpy()
    np.testing.assert_allclose(rows, [[half, half, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]], rtol=1e-6)


def test_no_texts_give_no_rows() -> None:
    assert BagOfWords(["a"], unknown_column=True)(tf.constant([], tf.string)).shape == (0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": []}, r"`vocabulary` must hold at least one word\. Received: vocabulary=\[\]"),
        ({"vocabulary": "cat"}, r"`vocabulary` must hold at least one word\. Received: vocabulary='cat'"),
        ({"vocabulary": ["a", "b", "a"]}, r"`vocabulary` must not repeat a word\. Received: 'a'"),
        ({"vocabulary": ["a", "B"]}, r"as `tokenize` yields them\. Received: 'B', which becomes \['b'\]"),
        ({"vocabulary": ["a b"]}, r"Received: 'a b', which becomes \['a', 'b'\]"),
        ({"vocabulary": [""]}, r"Received: '', which becomes \[\]"),
        ({"vocabulary": ["a"], "weighting": "bm25"}, r"`weighting` must be one of .* weighting='bm25'"),
        ({"vocabulary": ["a"], "weights": [1, 2]}, r"`weights` must be 1 positive numbers, .* Received: 2"),
        ({"vocabulary": ["a"], "weights": [0]}, r"`weights` must be 1 positive numbers"),
    ],
)
def test_bad_vocabularies(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BagOfWords(**options)


def test_nothing_to_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="`vocabulary` must hold at least one word"):
        BagOfWords.fit(["a", "b"], min_count=2)


def test_a_saved_model_gives_the_same_rows(tmp_path: Path) -> None:
    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = BagOfWords.fit(["côte cat", "cat dog"], weighting="tfidf", unknown_column=True)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def vectors(self, texts: tf.Tensor) -> tf.Tensor:
            return self.bag(texts)

    model = Model()
    assert model.vectors.get_concrete_function().structured_outputs.shape.as_list() == [None, 4]
    tf.saved_model.save(model, str(tmp_path))
    texts = tf.constant(["Cat! côte", "x", "", "dog dog"])
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded.vectors(texts), model.bag(texts))


def test_it_can_be_made_while_a_graph_is_traced() -> None:
    dataset = tf.data.Dataset.from_tensor_slices([["a b"], ["x"]])
    rows = [row.numpy().tolist() for row in dataset.map(lambda texts: BagOfWords(["a", "b"])(texts))]
    assert rows == [[[1, 1]], [[0, 0]]]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("sea, 50mm", [1, 1, 0]),
        ("SEA sea\tÉté", [1, 0, 1]),
        ("seaside 50", [0, 0, 0]),
        ("", [0, 0, 0]),
        (b"sea\xff50mm\0x", [1, 1, 0]),
    ],
)
def test_rows_of_tags_by_hand(text, row):
    assert Tags(["sea", "50mm", "été"])([text]).numpy().tolist() == [row]


def test_no_texts_give_no_rows_of_tags():
    assert Tags(["a", "b"])(tf.constant([], tf.string)).shape == (0, 2)


def test_vocabulary_file(tmp_path):
    (tmp_path / "tags.txt").write_text("Sky 845\n\nsea\n", encoding="utf-8")
    assert read_vocabulary(tmp_path / "tags.txt") == ["sky", "sea"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sky\nsea\nSKY 3\n", r"tags\.txt, line 3: tags must not repeat. Received: 'sky', as in line 1"),
        ("\n", r"tags\.txt: must hold a tag in each line. Received: an empty file"),
    ],
)
def test_bad_vocabulary_files(tmp_path, content, message):
    (tmp_path / "tags.txt").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_vocabulary(tmp_path / "tags.txt")
