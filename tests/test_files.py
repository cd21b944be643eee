import json
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf.files import (
    atomic_folder,
    atomic_write,
    check_not_input,
    files_fingerprint,
    locked_folder,
    remove_folder,
    write_bytes,
    write_json,
    write_npz,
    write_text,
)


def test_text_bytes_and_json_are_written_as_given(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "Åland\r\n")
    write_bytes(tmp_path / "a.bin", b"\x00\xff")
    write_json(tmp_path / "a.json", {"b": 1, "a": "é"})
    assert (tmp_path / "a.txt").read_bytes() == "Åland\r\n".encode()
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\xff"
    assert (tmp_path / "a.json").read_text("utf-8") == '{\n  "b": 1,\n  "a": "é"\n}\n'
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "a.json", "a.txt"]


def test_json_takes_numpy_values_and_paths(tmp_path: Path) -> None:
    value = {"scalar": np.float32(0.5), "count": np.int64(3), "list": np.arange(2), "path": Path("x/y")}
    write_json(tmp_path / "a.json", value)
    expected = {"scalar": 0.5, "count": 3, "list": [0, 1], "path": "x/y"}
    assert json.loads((tmp_path / "a.json").read_text()) == expected


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ({"a": float("nan")}, ValueError, "not JSON compliant"),
        (
            {"a": {1, 2}},
            TypeError,
            r"`value` must be made of what JSON can hold\. Received: \{1, 2\} of type set",
        ),
    ],
)
def test_json_that_cannot_be_written_leaves_the_old_file(
    tmp_path: Path, value: object, error: type[Exception], message: str
) -> None:
    write_text(tmp_path / "a.json", "old")
    with pytest.raises(error, match=message):
        write_json(tmp_path / "a.json", value)
    assert (tmp_path / "a.json").read_text() == "old"


def test_npz_round_trip_is_byte_identical_and_adds_no_suffix(tmp_path: Path) -> None:
    arrays = {"path": np.arange(3), "name": np.array(["a", "é"])}
    write_npz(tmp_path / "first", **arrays)
    write_npz(tmp_path / "second", **arrays)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    with np.load(tmp_path / "first", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["path"], arrays["path"])
        np.testing.assert_array_equal(archive["name"], arrays["name"])


def test_npz_refuses_objects(tmp_path: Path) -> None:
    message = r"`a` must be an array of numbers or strings\. Received: a\.dtype=object"
    with pytest.raises(TypeError, match=message):
        write_npz(tmp_path / "a.npz", a=np.array([None]))
    assert not os.listdir(tmp_path)


def test_a_failing_block_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    def interrupted() -> None:
        with atomic_write(tmp_path / "a") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    write_text(tmp_path / "a", "old")
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_the_file_is_unseen_until_it_is_complete(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a") as file:
        file.write(b"half")
        file.flush()
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"half"


def test_parent_folders_are_made_and_the_umask_decides_the_permissions(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "x" / "y" / "a", "text")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "x" / "y" / "a").stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "target")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "target").read_text() == "text"


def test_a_name_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 255), "text")
    assert (tmp_path / ("n" * 255)).read_text() == "text"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_text(pipe, "text")
    reader.join(timeout=60)
    assert received == [b"text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=r"`path` must name a file\. Received: a folder"):
        write_text(tmp_path, "text")


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "new") as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "new" / "a").read_text() == "1"
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "other") as folder:
        (folder / "missing" / "a").write_text("1")
    assert os.listdir(tmp_path) == ["new"]


def test_a_removed_folder_is_gone_and_a_missing_one_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    remove_folder(tmp_path / "a")
    remove_folder(tmp_path / "a")
    assert os.listdir(tmp_path) == []


def test_a_locked_folder_names_the_process_that_holds_it(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with locked_folder(folder, RuntimeError):
        assert os.listdir(folder) == [".lock"]
        with pytest.raises(RuntimeError, match=f"^{os.getpid()}$"), locked_folder(folder, RuntimeError):
            pass
    with locked_folder(folder, RuntimeError):
        pass


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "afile"
    file.write_text("mine")
    message = f"^{file} must be a folder to write to. Received: a file.$"
    with pytest.raises(NotADirectoryError, match=message), locked_folder(file / below, RuntimeError):
        pass
    with pytest.raises(NotADirectoryError, match=message):
        write_text(file / below / "new", "1")
    assert file.read_text() == "mine"


def test_an_output_must_not_be_its_input(tmp_path: Path) -> None:
    file, link = tmp_path / "a", tmp_path / "b"
    file.write_text("mine")
    link.symlink_to(file)
    for out in (file, link):
        with pytest.raises(ValueError, match=f"`out` must not be the input. Received: {out}."):
            check_not_input(out, file)
    check_not_input(tmp_path / "c", file)
    check_not_input(file, "emoji")


def test_a_fingerprint_changes_with_contents_names_sizes_and_times(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_text("a")
    large.write_text("b")
    os.utime(large, ns=(1, 1))
    found = [files_fingerprint([small], {"large": large})]
    assert len(found[0]) == 16
    assert files_fingerprint([small], {"large": large}) == found[0]
    found.append(files_fingerprint([small], {"other": large}))
    os.utime(large, ns=(1, 2))
    found.append(files_fingerprint([small], {"large": large}))
    large.write_text("bb")
    os.utime(large, ns=(1, 2))
    found.append(files_fingerprint([small], {"large": large}))
    small.write_text("c")
    found.append(files_fingerprint([small], {"large": large}))
    found.append(files_fingerprint([small], {"large": tmp_path / "missing"}))
    found.append(files_fingerprint([small]))
    assert len(set(found)) == len(found)
