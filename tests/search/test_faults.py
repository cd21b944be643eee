"""Kills, full disks, damaged files and second writers: the index is in the old state or the new one, and says so.

SEARCH_KILLS=50 kills the writer of the first test 50 times instead of 3; `pytest -s` then shows the number of rows.
"""

import contextlib
import os
import random as random_numbers
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf.files import write_json
from cmimh_tf.search.api import create_index, open_index
from cmimh_tf.search.engines.database import Database
from cmimh_tf.search.engines.interface import IndexBusy, IndexDamaged, IndexNotFound, StorageError
from tests.search.conftest import random_codes
from tests.search.fault_writer import BATCH, batch_codes, batch_ids

KILLS = int(os.environ.get("SEARCH_KILLS", "3"))
ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def start(*arguments):
    """A writer, which is killed at the end of the block, also if a check in the block fails."""
    with subprocess.Popen(
        [sys.executable, Path(__file__).parent / "fault_writer.py", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged_until_killed(mode, address, seconds, changes=0):
    """The lines that a writer printed before it was killed, some time after it was ready and made some changes."""
    with start(mode, address) as process:
        first = [process.stdout.readline() for _ in range(changes + 1)]
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        lines = [*first, *process.stdout]
    assert process.returncode == -signal.SIGKILL
    return [line.strip() for line in lines if line.endswith("\n")]


def test_kills_while_adding_lose_nothing_that_was_acknowledged(tmp_path):
    moments = random_numbers.Random(0)
    address = tmp_path / "index"
    create_index(address, code_length=64).close()
    acknowledged = 0
    for kill in range(KILLS):
        lines = acknowledged_until_killed("add", address, moments.uniform(0.0, 0.6), changes=int(kill == 0))
        acknowledged += len(lines) - 1
        with open_index(address) as index:
            count = len(index)
            # One change may have been stored without being acknowledged any more.
            assert count in (acknowledged * BATCH, (acknowledged + 1) * BATCH)
            acknowledged = count // BATCH
            assert index.verify() == []
            for number in {0, acknowledged - 1} - {-1}:
                found = index.search_codes(batch_codes(number)[:50], top=1)
                assert found.ids[:, 0].tolist() == batch_ids(number)[:50]
                assert found.distances.max() == 0
    assert acknowledged > 0
    with open_index(address) as index:
        found = index.get([name for number in range(acknowledged) for name in batch_ids(number)])
        assert all(item is not None for item in found)
        assert {item.caption for item in found} == {f"caption {number}" for number in range(acknowledged)}
    print(f"{KILLS} kills, {len(found):,} acknowledged rows, 0 lost")


@pytest.fixture
def stocked(tmp_path):
    """An index of 40 batches."""
    address = tmp_path / "index"
    with create_index(address, code_length=64) as index, index.writing() as writer:
        for number in range(40):
            writer.add_codes(batch_ids(number), image_codes=batch_codes(number), metadata={"batch": [number] * BATCH})
    return address


def test_kills_while_removing_remove_whole_batches(stocked):
    removed = 0
    for changes, seconds in ((0, 0.1), (2, 0.05)):
        lines = acknowledged_until_killed("remove", stocked, seconds, changes)
        removed += len(lines) - 1
        with open_index(stocked) as index:
            assert len(index) in ((40 - removed) * BATCH, max(0, 39 - removed) * BATCH)
            removed = 40 - len(index) // BATCH
            assert index.verify() == []
            if removed:
                assert index.get([batch_ids(removed - 1)[-1]]) == [None]
            if removed < 40:
                assert index.get([batch_ids(removed)[0]])[0].metadata == {"batch": removed}
    assert removed > 0


def test_kills_while_replacing_codes_leave_one_generation(stocked):
    reached = 0
    for changes, seconds in ((0, 0.1), (1, 0.05), (1, 0.2)):
        lines = acknowledged_until_killed("replace", stocked, seconds, changes)
        acknowledged = int(lines[-1]) if len(lines) > 1 else reached
        with open_index(stocked) as index:
            reached = int(index.header.sources[0]["data"]) if index.header.sources else 0
            assert reached in (acknowledged, acknowledged + 1)
            assert index.verify() == []
            assert len(index) == 40 * BATCH
            codes = index.get([batch_ids(7)[3]])[0].codes["image"]
            assert codes == (batch_codes(7)[3].tobytes() if reached == 0 else bytes([reached % 256]) * 8)
    assert reached > 0
    # The next change removes what the killed ones left.
    with open_index(stocked) as index:
        index.engine.replace_codes(lambda view: (view.header, iter(_same(view))))
    assert len(list(stocked.glob("generation-*"))) == 1


def _same(view):
    from cmimh_tf.search.items import ItemBatch

    rows = view.all_rows()
    codes = view.codes("image", rows)
    yield ItemBatch(view.ids(rows), {"image": codes}, {"image": np.ones(len(rows), bool)})


def test_kills_while_building_leave_no_half_index(tmp_path):
    address = tmp_path / "index"
    ids = [name for number in range(30) for name in batch_ids(number)]
    codes = np.concatenate([batch_codes(number) for number in range(30)])
    np.savez(f"{address}.npz", ids=np.array(ids), image_codes=codes)
    for changes, seconds in ((0, 0.05), (2, 0.1)):
        acknowledged_until_killed("build", address, seconds, changes)
        finished = [path for path in tmp_path.glob("index-*") if path.is_dir()]
        for path in finished:
            with open_index(path) as index:
                assert len(index) == len(ids)
                assert index.verify() == []
        for path in finished:
            path.rename(tmp_path / f"done-{time.monotonic_ns()}")


def test_a_full_disk_is_one_sentence_and_changes_nothing(stocked):
    size = max(path.stat().st_size for path in stocked.rglob("*"))
    with start("add", stocked, size + 200_000) as process:
        output, error = process.communicate(timeout=600)
    assert process.returncode == 2
    assert error.count("\n") == 1
    assert "could not be" in error
    assert "unchanged" in error or "as it was before" in error
    acknowledged = len(output.splitlines()) - 1
    with open_index(stocked) as index:
        assert len(index) == (40 + acknowledged) * BATCH
        assert index.verify() == []
        index.add_codes(["later"], image_codes=batch_codes(0)[:1])


def test_sqlite_s_own_limit_is_a_full_disk(stocked, monkeypatch):
    from cmimh_tf.search.engines import database

    connect = database._connect

    def with_limit(path, writable):
        connection = connect(path, writable)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    with open_index(stocked) as index:
        monkeypatch.setattr(database, "_connect", with_limit)
        with pytest.raises(StorageError, match=r"because the disk is full\. The index is as it was before"):
            index.add_codes(batch_ids(50), image_codes=batch_codes(50))
        monkeypatch.undo()
        assert len(index) == 40 * BATCH
        assert index.verify() == []


def test_a_second_process_cannot_write_but_read(stocked, random):
    with start("hold", stocked) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "held\n"]
        with open_index(stocked) as index:
            with pytest.raises(IndexBusy, match=rf"is being written by another process \(process {process.pid}\)"):
                index.add_codes(["mine"], image_codes=random_codes(random, 1, 64))
            assert index.search_codes(batch_codes(0)[:1], top=1).ids.tolist() == [[batch_ids(0)[0]]]


def test_readers_see_whole_changes_while_another_process_writes(stocked):
    with start("add", stocked) as process:
        process.stdout.readline()
        with open_index(stocked) as index:
            seen = set()
            deadline = time.monotonic() + 300
            while len(seen) < 4:
                assert time.monotonic() < deadline
                count = len(index)
                assert count % BATCH == 0
                newest = count // BATCH - 1
                assert index.search_codes(batch_codes(newest)[-1:], top=1).ids.tolist() == [[batch_ids(newest)[-1]]]
                seen.add(count)


def damage(path, old, new):
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def test_verify_finds_damaged_codes_and_captions(tmp_path, random):
    codes = random_codes(random, 3000, 64)
    create_index(tmp_path / "index", code_length=64).close()
    with open_index(tmp_path / "index") as index:
        index.add_codes([f"id-{number}" for number in range(3000)], image_codes=codes, captions=["a caption"] * 3000)
        assert index.verify() == []
        # Nothing is left in the log, so that the file is complete.
        assert (tmp_path / "index" / "generation-1" / "items.db-wal").stat().st_size == 0
        file = tmp_path / "index" / "generation-1" / "items.db"
        damage(file, codes[1234].tobytes(), bytes(8))
        damage(file, b"a caption", b"A caption")
    with contextlib.closing(Database(file)) as database:
        problems = database.verify()
    assert "Items 1 to 3,000 do not match their checksum." in problems
    assert any("Caption, picture or metadata of item" in problem for problem in problems)


def test_damaged_codes_are_not_searched(tmp_path, random):
    codes = random_codes(random, 3000, 64)
    create_index(tmp_path / "index", code_length=64).close()
    with open_index(tmp_path / "index") as index:
        index.add_codes([f"id-{number}" for number in range(3000)], image_codes=codes)
    damage(tmp_path / "index" / "generation-1" / "items.db", codes[1234].tobytes(), bytes(8))
    with pytest.raises(IndexDamaged, match=r"items\.db is damaged \(items 1 to 3,000 do not match their checksum\)"):
        open_index(tmp_path / "index")


def test_damaged_captions_and_metadata_are_not_returned(tmp_path, random):
    create_index(tmp_path / "index", code_length=64).close()
    with open_index(tmp_path / "index") as index:
        index.add_codes(
            ["a", "b"],
            image_codes=random_codes(random, 2, 64),
            captions=["a caption", "second"],
            metadata={"kind": ["cat", "dog"]},
        )
    damage(tmp_path / "index" / "generation-1" / "items.db", b"a caption", b"A caption")
    with open_index(tmp_path / "index") as index:
        assert index.get(["b"])[0].caption == "second"
        for read in (
            lambda: index.get(["a"]),
            lambda: index.search_codes(random_codes(random, 1, 64), where="kind = 'dog'"),
        ):
            with pytest.raises(IndexDamaged, match="metadata of item 1 do not match their checksum"):
                read()


def test_lost_captions_are_noticed_and_items_without_any_are_not(tmp_path, random):
    create_index(tmp_path / "index", code_length=64).close()
    with open_index(tmp_path / "index") as index:
        index.add_codes(["a", "b"], image_codes=random_codes(random, 2, 64), captions=["first", None])
        index.add_codes(["c", "d"], image_codes=random_codes(random, 2, 64))
    file = tmp_path / "index" / "generation-1" / "items.db"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM details")
    with open_index(tmp_path / "index") as index:
        assert [item.caption for item in index.get(["b", "c", "d"])] == [None] * 3
        with pytest.raises(IndexDamaged, match="metadata of item 1 do not match their checksum"):
            index.get(["d", "a"])


def test_a_cut_last_page_is_noticed(tmp_path, random):
    create_index(tmp_path / "index", code_length=64).close()
    captions = [f"caption {number}" for number in range(300)]
    with open_index(tmp_path / "index") as index:
        index.add_codes(captions, image_codes=random_codes(random, 300, 64), captions=captions)
    file = tmp_path / "index" / "generation-1" / "items.db"
    os.truncate(file, file.stat().st_size - 3000)
    with pytest.raises(IndexDamaged, match=r"items\.db is damaged \(its last page is cut\)"):
        open_index(tmp_path / "index")


def test_damaged_settings_and_removals_are_noticed(stocked):
    with open_index(stocked) as index:
        index.remove(ids=batch_ids(3)[:5])
    file = stocked / "generation-1" / "items.db"
    for statement in (
        "UPDATE removed SET row = row + 7 WHERE row IN (SELECT max(row) FROM removed)",
        "UPDATE settings SET value = value + 1 WHERE name = 'next_row'",
        "DELETE FROM blocks WHERE first_row = (SELECT max(first_row) FROM blocks)",
    ):
        before = file.read_bytes()
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(statement)
        with pytest.raises(IndexDamaged, match="do not match their checksum"):
            open_index(stocked)
        file.write_bytes(before)


@pytest.mark.parametrize("knows_checksum", [False, True])
def test_an_index_that_an_earlier_version_wrote_opens(stocked, knows_checksum):
    with open_index(stocked) as index:
        index.remove(ids=batch_ids(3)[:4])
    with contextlib.closing(sqlite3.connect(stocked / "generation-1" / "items.db")) as connection, connection:
        # It removed an item without renewing the checksum, if this version had stored one.
        connection.execute("UPDATE settings SET value = value + 1 WHERE name = 'change'")
        connection.execute("INSERT INTO removed VALUES (1, (SELECT value FROM settings WHERE name = 'change'))")
        connection.execute("DELETE FROM details WHERE row = 1")
        if not knows_checksum:
            connection.execute("DELETE FROM settings WHERE name IN ('checksum', 'removed_sum')")
    for remaining in (40 * BATCH - 6, 40 * BATCH - 7):
        with open_index(stocked) as index:
            index.remove(ids=[index.sample(1)[0].id])
            assert len(index) == remaining


def test_a_file_that_is_no_database_is_one_sentence(stocked):
    file = next(stocked.glob("generation-*/items.db"))
    file.write_bytes(b"something else" * 1000)
    with pytest.raises(IndexDamaged, match=r"is damaged .* Build it again, or restore a copy"):
        open_index(stocked)


def test_another_format_is_rejected_with_what_to_do(stocked):
    write_json(stocked / "current.json", {"format": 99, "generation": 1}, checksum=True)
    with pytest.raises(IndexDamaged, match=r"must be an index of format 1\. Received: format 99\. Open it with"):
        open_index(stocked)
    write_json(stocked / "current.json", {}, checksum=True)
    with pytest.raises(IndexDamaged, match="Received: format None"):
        open_index(stocked)
    (stocked / "current.json").write_text("not json")
    with pytest.raises(IndexDamaged, match=r"current\.json is damaged"):
        open_index(stocked)


def test_a_removed_folder_is_not_made_again_by_writing(tmp_path, random):
    import shutil

    index = create_index(tmp_path / "index", code_length=64)
    shutil.rmtree(tmp_path / "index")
    with pytest.raises(IndexNotFound):
        index.add_codes(["a"], image_codes=random_codes(random, 1, 64))
    assert not (tmp_path / "index").exists()
    index.close()
