""".npz files: what is written is read again, and errors name the file and the key."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.data import PairedData, load_npz, npz, save_npz
from cmimh_tf.data.npz import load_npz_in_parts, records_to_npz, store_npz, vector_bytes
from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.readers.tfrecord import make_example
from cmimh_tf.data.records import load_vectors
from cmimh_tf.data.sources import open_records
from cmimh_tf.stored_rows import StoredRows


@pytest.fixture
def data() -> PairedData:
    generator = np.random.default_rng(0)
    return PairedData(
        image=generator.normal(size=(5, 3)),
        text=generator.normal(size=(5, 2)),
        labels=generator.integers(0, 2, (5, 4)),
        ids=np.array(["a", "b", "c", "d", "é"]),
        captions=np.array(["one", "", "three", "four", "five"]),
        is_query=np.array([True, False, False, True, False]),
        classes=np.array(["w", "x", "y", "z"]),
    )


def message_of(path: Path) -> str:
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        load_npz(path)
    return str(caught.value)


def test_round_trip_keeps_every_field(tmp_path: Path, data: PairedData) -> None:
    save_npz(tmp_path / "pairs.npz", data)
    loaded = load_npz(tmp_path / "pairs.npz")
    for name in ("image", "text", "labels", "ids", "captions", "is_query", "classes"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(data, name), strict=True)


def test_round_trip_without_options(tmp_path: Path) -> None:
    save_npz(tmp_path / "pairs.npz", PairedData(np.ones((2, 3)), np.ones((2, 1))))
    loaded = load_npz(str(tmp_path / "pairs.npz"))
    assert loaded.labels is loaded.ids is loaded.captions is loaded.is_query is loaded.classes is None


def test_compressed_float16_files_with_other_keys_load(tmp_path: Path) -> None:
    path = tmp_path / "pairs.npz"
    image = np.array([[0.5, 2.0]], np.float16)
    np.savez_compressed(path, image=image, text=image, ids=[42], classes=["alone"], source=np.array(1))
    loaded = load_npz(path)
    np.testing.assert_array_equal(loaded.image, image.astype(np.float32), strict=True)
    assert loaded.ids is not None
    assert loaded.ids.tolist() == ["42"]
    assert loaded.classes is None


def test_an_object_array_that_is_not_needed_is_left_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=np.ones((1, 1)), text=np.ones((1, 1)), notes=np.array([{}], object))
    assert len(load_npz(tmp_path / "a.npz")) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": np.array([[1.0], [np.nan]])}, "`image` must be finite. Received: image[1, 0]=nan."),
        ({"text": np.zeros((2, 1))}, "`text` must have something other than 0 in every row."),
        ({"text": np.array([["a"], ["b"]])}, "`text` must hold numbers. Received: text.dtype=<U1"),
        ({"labels": np.array([[0], [7]])}, "`labels` must be 0 or 1. Received: labels[1, 0]=7."),
        ({"ids": np.array(["a", "a"])}, "`ids` must not repeat. Received: ids[1]='a', as in row 0."),
    ],
)
def test_bad_values_name_the_file(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    arrays = {"image": np.ones((2, 1)), "text": np.ones((2, 1))} | changes
    np.savez(tmp_path / "pairs.npz", **arrays)
    assert message_of(tmp_path / "pairs.npz").startswith(f"{tmp_path / 'pairs.npz'}: {message}")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    np.savez(tmp_path / "a.npz", image=np.array([[Trap()]], object), text=np.ones((1, 1)))
    assert "`image` must hold numbers or strings. Received: dtype=object" in message_of(tmp_path / "a.npz")
    assert not (tmp_path / "sprung").exists()


def test_missing_key_is_named_with_the_nearest(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", Images=np.ones((1, 1)), text=np.ones((1, 1)))
    assert message_of(tmp_path / "a.npz").endswith(
        "must contain `image`. Received: keys Images, text. Did you mean Images?"
    )


def test_missing_file_suggests_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "coco18k.npz").touch()
    (tmp_path / "other.txt").touch()
    for name in ("coco18.npz", "COCO18.NPZ"):
        with pytest.raises(FileNotFoundError, match=rf"{name} does not exist\. Did you mean coco18k\.npz\?$"):
            load_npz(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"zzz does not exist\.$"):
        load_npz(tmp_path / "zzz")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        load_npz(tmp_path / "nowhere" / "coco18k.npz")


def test_files_that_are_no_archive_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for content, what in {b"": "an empty file", b"hello, world": "a file that begins with b'hello,'"}.items():
        path.write_bytes(content)
        assert message_of(path) == f"{path}: must be an .npz file. Received: {what}."
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    assert "Received: a single array (.npy)." in message_of(tmp_path / "a.npy")
    assert "Received: a folder" in message_of(tmp_path)


def test_a_member_that_is_no_array_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("image", b"raw")
        archive.writestr("text", b"raw")
    assert "`image` must be an array in NumPy's format. Received: 3 other bytes." in message_of(tmp_path / "a.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_truncated_anywhere_is_an_error_that_names_the_file(tmp_path: Path, save: Any) -> None:
    generator = np.random.default_rng(0)
    save(tmp_path / "whole.npz", image=generator.normal(size=(40, 8)), text=generator.normal(size=(40, 4)))
    whole = (tmp_path / "whole.npz").read_bytes()
    path = tmp_path / "cut.npz"
    for size in range(4, len(whole) - 1, 101):
        path.write_bytes(whole[:size])
        assert "a truncated or damaged one" in message_of(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_byte_is_an_error_or_harmless(tmp_path: Path, save: Any) -> None:
    generator = np.random.default_rng(0)
    save(tmp_path / "whole.npz", image=generator.normal(size=(40, 8)), text=generator.normal(size=(40, 4)))
    whole = (tmp_path / "whole.npz").read_bytes()
    image = load_npz(tmp_path / "whole.npz").image
    path = tmp_path / "damaged.npz"
    refused = 0
    for position in range(0, len(whole), 13):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            # Bytes that the format does not use, such as dates, may change without harm.
            np.testing.assert_array_equal(load_npz(path).image, image)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
    assert refused > len(whole) // 13 // 2


def test_a_second_save_replaces_the_first(tmp_path: Path, data: PairedData) -> None:
    save_npz(tmp_path / "pairs.npz", data)
    save_npz(tmp_path / "pairs.npz", data.take([0, 1]))
    assert len(load_npz(tmp_path / "pairs.npz")) == 2
    assert os.listdir(tmp_path) == ["pairs.npz"]


def test_reading_data_does_not_bring_tensorflow() -> None:
    program = "import sys, cmimh_tf.data; assert not {'tensorflow', 'keras'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def write_records(folder, marks, name="pairs-00000-of-00001"):
    folder.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / f"{name}.tfrecord")) as writer:
        for row, mark in enumerate(marks):
            features = {"id": f"{name[6:11]}-{row}", "image": np.ones(2), "text": np.arange(3.0) * row}
            writer.write(make_example({**features, **({"split": mark} if mark else {})}).SerializeToString())
    return str(folder)


@pytest.mark.parametrize(
    ("marks", "is_query", "is_train"),
    [
        (["train", "query", "database"], [0, 1, 0], [1, 0, 0]),
        (["database", "query", "database"], [0, 1, 0], None),
        (["", "", ""], None, None),
    ],
)
def test_marks_of_records_survive_to_an_npz_and_back(tmp_path, marks, is_query, is_train):
    reader = open_records(write_records(tmp_path / "records", marks))
    records_to_npz(reader, tmp_path / "a.npz")
    for data in (
        load_vectors(reader),
        load_npz(tmp_path / "a.npz"),
        load_vectors(open_records(str(tmp_path / "a.npz"))),
    ):
        assert data.ids.tolist() == ["00000-0", "00000-1", "00000-2"]
        assert (None if data.is_query is None else data.is_query.tolist()) == is_query
        assert (None if data.is_train is None else data.is_train.tolist()) == is_train
        # The first text is all 0, which files may hold and `PairedData` not.
        np.testing.assert_allclose(data.text, [[0, 0, 0], [0, 1, 2], [0, 2, 4]], atol=1e-30)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (["train", "test"], r"record 1: `split` must be train, database or query. Received: 'test'"),
        (["train", "database"], r"`split` must mark some rows query, not all. Received: 0"),
    ],
)
def test_wrong_marks_are_refused(tmp_path, marks, message):
    with pytest.raises(DataError, match=message):
        open_records(write_records(tmp_path / "records", marks)).index()


def test_folder_that_lacks_a_shard_is_refused_but_not_a_shard_alone(tmp_path):
    folder = write_records(tmp_path / "records", ["", ""], "pairs-00000-of-00003")
    write_records(tmp_path / "records", ["", ""], "pairs-00002-of-00003")
    with pytest.raises(DataError, match=r"records/pairs: all 3 shards must exist. Received: 2"):
        open_records(folder).index()
    assert len(open_records(f"{folder}/pairs-00000-of-00003.tfrecord").index().ids) == 2


def test_classes_come_from_the_description_beside_shards(tmp_path):
    folder = write_records(tmp_path / "records", ["", ""])
    (tmp_path / "records" / "pairs.json").write_text(json.dumps({"classes": ["x", "y"]}))
    assert open_records(folder).index().classes == ["x", "y"]


def test_official_training_set_of_an_npz_reaches_the_pipeline(tmp_path):
    marks = {"is_query": [True, False, False, False], "is_train": [False, False, True, False]}
    save_npz(tmp_path / "a.npz", PairedData(np.ones((4, 1)), np.ones((4, 1)), **marks))
    splits = open_records(str(tmp_path / "a.npz")).index().splits
    assert [getattr(splits, name).tolist() for name in ("train", "database", "query")] == [[2], [1, 2, 3], [0]]


def test_long_captions_are_cut(tmp_path):
    captions = ["é" * 200_000, "A dog"]
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for row, caption in enumerate(captions):
            features = {"id": str(row), "image": np.ones(2), "text": np.ones(3), "caption": caption}
            writer.write(make_example(features).SerializeToString())
    reader = open_records(str(tmp_path / "a.tfrecord"))
    records_to_npz(reader, tmp_path / "a.npz")
    for data in (load_vectors(reader), load_npz(tmp_path / "a.npz")):
        assert data.captions.tolist() == ["é" * 1000, "A dog"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_parts_equal_the_whole_file(data, save, tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "BLOCK_ROWS", 2)
    path = tmp_path / "pairs.npz"
    save(path, image=data.image.astype(np.float16), text=data.text, labels=data.labels, ids=data.ids)
    whole, parts = load_npz(path), list(load_npz_in_parts(path))
    assert [len(part) for part in parts] == [2, 2, 1]
    for name in ("image", "text", "labels", "ids"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(whole, name))
        assert joined.dtype == getattr(whole, name).dtype


def test_a_stored_file_equals_the_loaded_one(data, tmp_path):
    save_npz(tmp_path / "pairs.npz", data)
    whole, stored = load_npz(tmp_path / "pairs.npz"), store_npz(tmp_path / "pairs.npz", tmp_path / "vectors")
    assert isinstance(stored.image, StoredRows)
    assert stored.fingerprint() == whole.fingerprint()
    np.testing.assert_array_equal(stored.is_query, whole.is_query)


@pytest.mark.parametrize("broken", ["nan", "zero", "labels", "ids", "truncated", "fortran", "lengths"])
def test_parts_are_checked_as_the_whole_file(data, broken, tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "BLOCK_ROWS", 2)
    path = tmp_path / "pairs.npz"
    arrays = {"image": data.image.copy(), "text": data.text.copy(), "labels": data.labels.copy(), "ids": data.ids}
    if broken == "nan":
        arrays["text"][3, 1] = np.nan
    elif broken == "zero":
        arrays["image"][4] = 0
    elif broken == "labels":
        arrays["labels"][3, 2] = 2
    elif broken == "ids":
        arrays["ids"] = np.array(["a", "b", "c", "d", "a"])
    elif broken == "fortran":
        arrays["image"] = np.asfortranarray(arrays["image"])
    elif broken == "lengths":
        arrays["text"] = arrays["text"][:4]
    np.savez(path, **arrays)
    if broken == "truncated":
        content = bytearray(path.read_bytes())
        content[content.index(data.image[3:4].tobytes())] ^= 1
        path.write_bytes(content)
    if broken == "fortran":
        assert vector_bytes(path) == 0
        np.testing.assert_array_equal(next(load_npz_in_parts(path)).image, data.image)
        return
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        list(load_npz_in_parts(path))
    assert str(caught.value) == message_of(path) or broken == "truncated"
