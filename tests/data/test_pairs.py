from typing import Any

import numpy as np
import pytest

from cmimh_tf.data import PairedData


def fields(**changes: Any) -> dict[str, Any]:
    """A valid set of fields, three pairs, with `changes`."""
    valid = {
        "image": [[1.0, 0.0], [2.0, 1.0], [3.0, 2.0]],
        "text": [[1.0], [2.0], [3.0]],
        "labels": [[1, 0], [0, 0], [1, 1]],
        "ids": ["a", "b", "c"],
        "captions": ["", "x", "x"],
        "is_query": [True, False, False],
        "classes": ["cat", "dog"],
    }
    return {name: np.array(value) for name, value in valid.items()} | changes


def test_types_are_the_documented_ones() -> None:
    data = PairedData(**fields(ids=np.array([30, 10, 20]), captions=np.array([b"", b"\xc3\xa9", b"x"])))
    assert (data.image.dtype, data.text.dtype) == (np.float32, np.float32)
    assert data.labels is not None
    assert data.labels.dtype == np.uint8
    assert data.ids is not None
    assert data.ids.tolist() == ["30", "10", "20"]
    assert data.captions is not None
    assert data.captions.tolist() == ["", "é", "x"]
    assert len(data) == 3


def test_only_image_and_text_are_needed() -> None:
    data = PairedData(np.ones((2, 1)), np.ones((2, 1)))
    assert data.labels is data.ids is data.captions is data.is_query is data.classes is None
    assert data.take([1]).labels is None


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint16, np.int64, bool, ">f8"])
def test_any_number_type_becomes_float32(dtype: Any) -> None:
    data = PairedData(np.ones((2, 3), dtype), np.ones((2, 1), dtype))
    np.testing.assert_array_equal(data.image, np.ones((2, 3), np.float32), strict=True)


def test_label_rows_may_be_all_zero_and_float() -> None:
    data = PairedData(**fields(labels=np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])))
    np.testing.assert_array_equal(data.labels, np.array([[0, 0], [1, 0], [0, 0]], np.uint8), strict=True)


def test_take_picks_rows_of_every_field_in_order() -> None:
    taken = PairedData(**fields()).take(np.array([2, 0]))
    assert taken.image.tolist() == [[3, 2], [1, 0]]
    assert taken.text.tolist() == [[3], [1]]
    for name, value in {
        "labels": [[1, 1], [1, 0]],
        "ids": ["c", "a"],
        "captions": ["x", ""],
        "is_query": [False, True],
        "classes": ["cat", "dog"],
    }.items():
        assert getattr(taken, name).tolist() == value


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([0, 3], ValueError, r"`indices` must be in 0\.\.2\. Received: indices\[1\]=3\."),
        ([-1], ValueError, r"`indices` must be in 0\.\.2\. Received: indices\[0\]=-1\."),
        ([0.5], TypeError, r"`indices` must be a list of integers\. Received: .*float64"),
        ([[0]], TypeError, r"`indices` must be a list of integers\. Received: indices.shape=\(1, 1\)"),
    ],
)
def test_take_refuses_rows_that_are_not_there(indices: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PairedData(**fields()).take(indices)


def test_repr_is_short() -> None:
    assert repr(PairedData(**fields(ids=None, captions=None, is_query=None, classes=None))) == (
        "PairedData(image [3, 2], text [3, 1], labels [3, 2], ids None, captions None, is_query None, classes None, "
        "is_train None)"
    )


def nan_at(row: int) -> np.ndarray:
    values = np.ones((20_000, 2))
    values[row, 1] = np.nan
    return values


BAD_FIELDS = {
    "rows disagree": (
        {"text": np.ones((2, 1))},
        r"`text` must have one entry for each row of `image`, 3\. Received: text\.shape=\(2, 1\), "
        r"so that row 2 has no partner\.",
    ),
    "labels' rows disagree": ({"labels": np.ones((4, 2))}, r"`labels` must have .*row 3 has no partner"),
    "ids' rows disagree": ({"ids": np.array(["a"])}, r"`ids` must have .*ids\.shape=\(1,\)"),
    "captions' rows disagree": ({"captions": np.array(["a"])}, r"`captions` must have .*row 1 has"),
    "is_query's rows disagree": ({"is_query": np.array([True])}, r"`is_query` must have .*row 1 has"),
    "classes disagree": (
        {"classes": np.array(["a"])},
        r"`classes` must have one entry for each column of `labels`, 2\.",
    ),
    "classes alone": ({"labels": None}, r"`classes` must come with `labels`\. Received: labels=None\."),
    "NaN": (
        {"image": np.array([[1, 2], [3, np.nan], [np.nan, 1]])},
        r"`image` must be finite\. Received: image\[1, 1\]=nan\.",
    ),
    "infinity": (
        {"text": np.array([[1.0], [2.0], [-np.inf]])},
        r"`text` must be finite\. Received: text\[2, 0\]=-inf\.",
    ),
    "NaN in a later block": ({"image": nan_at(15_000)}, r"image\[15000, 1\]=nan"),
    "too large": (
        {"text": np.array([[1.0], [1e300], [2.0]])},
        r"`text` must be within the range of float32\. Received: text\[1, 0\]=1e\+300\.",
    ),
    "empty row": (
        {"image": np.array([[1, 0], [0, 1], [0, 0]])},
        r"`image` must have something other than 0 in every row\. Received: image\[2\] is all 0\.",
    ),
    "empty row before a NaN": ({"text": np.array([[0], [1], [np.nan]])}, r"text\[0\] is all 0"),
    "empty row after a NaN": ({"text": np.array([[1], [np.nan], [0]])}, r"text\[1, 0\]=nan"),
    "empty row by underflow": ({"text": np.array([[1], [1e-60], [1]])}, r"text\[1\] is all 0"),
    "rank 1": ({"image": np.ones(3)}, r"`image` must have shape \[N, D\].*Received: image\.shape=\(3,\)"),
    "rank 3": ({"text": np.ones((3, 1, 1))}, r"`text` must have shape \[N, D\].*\(3, 1, 1\)"),
    "rank 0": ({"text": np.float32(1)}, r"`text` must have shape \[N, D\].*Received: text\.shape=\(\)"),
    "no rows": ({"image": np.ones((0, 2))}, r"`image` must have shape .*not be empty.*\(0, 2\)"),
    "no columns": ({"text": np.ones((3, 0))}, r"`text` must have shape .*\(3, 0\)"),
    "ragged": ({"text": [[1.0], [1.0, 2.0], [3.0]]}, r"`text` must have rows of equal length"),
    "labels not 0/1": (
        {"labels": np.array([[1, 0], [0, 2], [3, 0]])},
        r"`labels` must be 0 or 1\. Received: labels\[1, 1\]=2\.",
    ),
    "labels NaN": ({"labels": np.array([[1, 0], [0, 0], [np.nan, 0]])}, r"labels\[2, 0\]=nan"),
    "labels of rank 1": ({"labels": np.array([0, 1, 0])}, r"`labels` must have shape \[N, C\]"),
    "is_train with a query": ({"is_train": [True, True, False]}, r"`is_train` must not mark a query\. .*row 0 in both"),
    "is_train alone": ({"is_query": None, "is_train": [1, 0, 0]}, r"`is_train` must come with `is_query`"),
    "is_query not 0/1": ({"is_query": np.array([0, 1, 2])}, r"`is_query` must be 0 or 1\. .*is_query\[2\]=2"),
    "ids repeat": (
        {"ids": np.array(["a", "b", "a"])},
        r"`ids` must not repeat\. Received: ids\[2\]='a', as in row 0\.",
    ),
    "captions not UTF-8": ({"captions": np.array([b"a", b"\xff", b"c"])}, r"captions\[1\]=b'\\xff'"),
}

BAD_TYPES = {
    "strings": (
        {"image": np.array([["x", "y"]] * 3)},
        r"`image` must hold numbers\. Received: image\.dtype=<U1, image\[0, 0\]=.*'x'",
    ),
    "objects": ({"text": np.array([[None]] * 3)}, r"`text` must hold numbers\. Received: text\.dtype=object"),
    "complex": ({"text": np.ones((3, 1), complex)}, r"`text` must hold numbers\. Received: .*complex128"),
    "label strings": ({"labels": np.array([["x"]] * 3)}, r"`labels` must hold 0/1 numbers\."),
    "float ids": ({"ids": np.array([1.0, 2.0, 3.0])}, r"`ids` must hold strings or integers\."),
    "number captions": ({"captions": np.array([1, 2, 3])}, r"`captions` must hold strings\."),
    "float is_query": ({"is_query": np.array([0.0, 1.0, 0.0])}, r"`is_query` must hold booleans\."),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_bad_values_are_named(name: str) -> None:
    changes, message = BAD_FIELDS[name]
    with pytest.raises(ValueError, match=message):
        PairedData(**fields(**changes))


@pytest.mark.parametrize("name", BAD_TYPES)
def test_bad_types_are_named(name: str) -> None:
    changes, message = BAD_TYPES[name]
    with pytest.raises(TypeError, match=message):
        PairedData(**fields(**changes))


def test_it_is_frozen() -> None:
    with pytest.raises(AttributeError):
        PairedData(**fields()).image = np.ones((3, 2))  # type: ignore[misc]


def test_fingerprint_follows_every_value_that_decides_a_result():
    image, text, labels = np.ones((3, 2)), np.ones((3, 4)), np.eye(3)
    original = PairedData(image, text, labels)
    assert original.fingerprint() == PairedData(image, text, labels, captions=["a", "b", "c"]).fingerprint()
    assert original.fingerprint() == PairedData(image, text, np.asfortranarray(labels)).fingerprint()
    others = [
        PairedData(2 * image, text, labels),
        PairedData(image, 2 * text, labels),
        PairedData(image, text, labels[::-1]),
        PairedData(image, text),
        PairedData(image, text, labels, is_query=[True, False, False]),
    ]
    assert len({original.fingerprint(), *(other.fingerprint() for other in others)}) == 6
