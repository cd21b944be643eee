import pytest
import tensorflow as tf

from cmimh_tf.features.tags import Tags, read_vocabulary


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
def test_rows_by_hand(text, row):
    assert Tags(["sea", "50mm", "été"])([text]).numpy().tolist() == [row]


def test_no_texts_give_no_rows():
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
