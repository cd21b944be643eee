"""Lists of checksums: what they notice, and what they must not complain about."""

import errno
import os
import subprocess

import pytest

from cmimh_tf import checksums
from cmimh_tf.checksums import CHECKSUM_FILE, DamagedFile, verify, verify_folder, write_folder_checksums
from cmimh_tf.files import read_json, read_text, write_json, write_text


def test_a_changed_file_is_named(tmp_path):
    write_text(tmp_path / "a.txt", "content", checksum=True)
    verify(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("Content")
    with pytest.raises(DamagedFile, match=r"a\.txt is damaged: it does not have the content that was written"):
        read_text(tmp_path / "a.txt")


def test_exchanged_files_are_noticed(tmp_path):
    for name in ("a", "b"):
        write_text(tmp_path / name, name, checksum=True)
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    with pytest.raises(DamagedFile):
        verify(tmp_path / "a")


def test_a_file_may_be_replaced_and_a_kill_before_it_gets_its_name_does_no_harm(tmp_path):
    write_text(tmp_path / "a", "first", checksum=True)
    # As after a kill between the two steps.
    checksums.append_checksum(tmp_path / "a", "0" * 64)
    assert read_text(tmp_path / "a") == "first"
    write_text(tmp_path / "a", "second", checksum=True)
    assert read_text(tmp_path / "a") == "second"


def test_files_that_are_not_listed_are_not_checked(tmp_path):
    (tmp_path / "a").write_text("anything")
    verify(tmp_path / "a")
    verify_folder(tmp_path, tmp_path / CHECKSUM_FILE)
    (tmp_path / CHECKSUM_FILE).write_bytes(b"\xff half a line\nabc  a\n")
    verify(tmp_path / "a")


def test_all_files_of_a_folder(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("a", "inner/b"):
        (tmp_path / name).write_text(name)
    write_folder_checksums(tmp_path, tmp_path / CHECKSUM_FILE)
    verify_folder(tmp_path, tmp_path / CHECKSUM_FILE)
    (tmp_path / "inner" / "b").write_text("c")
    with pytest.raises(DamagedFile, match=r"inner/b is damaged"):
        verify_folder(tmp_path, tmp_path / CHECKSUM_FILE)
    (tmp_path / "inner" / "b").unlink()
    with pytest.raises(DamagedFile, match=r"inner/b is missing"):
        verify_folder(tmp_path, tmp_path / CHECKSUM_FILE)


def test_the_list_is_what_sha256sum_writes(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1}, checksum=True)
    by_command = subprocess.run(["sha256sum", "a.json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (tmp_path / CHECKSUM_FILE).read_text() == by_command.stdout
    assert read_json(tmp_path / "a.json") == {"b": 1}


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_what_is_no_json_object_is_named(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DamagedFile, match=r"a\.json is damaged: "):
        read_json(tmp_path / "a.json")


def test_a_full_disk_while_a_line_is_added_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", lambda descriptor, data: 10)
    with pytest.raises(OSError, match="No space left on device") as raised:
        write_text(tmp_path / "a", "content", checksum=True)
    assert raised.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == [CHECKSUM_FILE]
