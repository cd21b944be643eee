"""What only the embedded engine has: blocks, states in memory, generations, versions and inverted files."""

import os
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest

from cmimh_tf.codes import hamming_distance
from cmimh_tf.search.api import create_index, open_index
from cmimh_tf.search.engines import database, embedded
from tests.search.conftest import random_codes, repeated_codes


def names(count, start=0):
    return [f"item-{number}" for number in range(start, start + count)]


@pytest.fixture
def index(tmp_path):
    with create_index(tmp_path / "index", code_length=32) as made:
        yield made


def num_blocks(index):
    with index.engine.view() as view:
        return view.database.connection.execute("SELECT count(*) FROM blocks").fetchone()[0]


def test_single_items_do_not_leave_as_many_blocks(index, random):
    codes = random_codes(random, 200)
    for number in range(200):
        index.add_codes([f"item-{number}"], image_codes=codes[number : number + 1], captions=[f"caption {number}"])
    assert num_blocks(index) <= 10
    assert index.search_codes(codes, top=1).ids[:, 0].tolist() == names(200)
    assert index.verify() == []


def test_large_batches_are_cut_into_blocks(index, random, monkeypatch):
    monkeypatch.setattr(database, "_LARGEST_BLOCK", 100)
    codes = random_codes(random, 250)
    index.add_codes(names(250), image_codes=codes)
    assert num_blocks(index) == 3
    index.add_codes(names(80, 250), image_codes=codes[:80])
    assert num_blocks(index) == 4
    assert index.verify() == []
    with open_index(index.address) as other:
        assert other.get(["item-249", "item-329"])[1].codes["image"] == codes[79].tobytes()


def test_removed_rows_leave_the_blocks_once_they_are_many(index, random, monkeypatch):
    monkeypatch.setattr(database, "_REMOVED_ROWS", 50)
    codes = random_codes(random, 400)
    index.add_codes(names(400), image_codes=codes, text_codes=codes, has_text=np.arange(400) % 3 == 0)
    with open_index(index.address) as behind:
        assert len(behind) == 400
        index.remove(ids=names(40))
        index.remove(ids=names(90, 40))
        with index.engine.view() as view:
            assert view.database.connection.execute("SELECT count(*) FROM removed").fetchone() == (0,)
            assert view.database.connection.execute("SELECT sum(items) FROM blocks").fetchone() == (270,)
        for handle in (index, behind):
            assert handle.search_codes(codes[130:], top=1).ids[:, 0].tolist() == names(270, 130)
            assert handle.info()["texts"] == sum(number % 3 == 0 for number in range(130, 400))
    index.add_codes(["item-3"], image_codes=codes[3:4])
    assert index.verify() == []
    assert len(index) == 271


def test_filter_columns_follow_changes(index, random):
    codes = random_codes(random, 60)
    metadata = [{"year": number, "name": f"n{number % 3}", "label": [f"l{number % 4}"]} for number in range(60)]
    index.add_codes(names(40), image_codes=codes[:40], metadata=metadata[:40])

    def found(where):
        return sorted(index.search_codes(codes[:1], top=100, where=where).ids[0].tolist())

    for where in ("year >= 10", "name = 'n1'", "label = 'l2'"):
        found(where)
    index.remove(ids=names(5, 8))
    index.add_codes(names(20, 40), image_codes=codes[40:], metadata=metadata[40:])
    index.add_codes(["item-20"], image_codes=codes[:1], metadata=[{"name": "new"}])
    kept = [number for number in range(60) if number not in (8, 9, 10, 11, 12, 20)]
    assert found("year >= 10") == sorted(f"item-{number}" for number in kept if number >= 10)
    assert found("name = 'n1'") == sorted(f"item-{number}" for number in kept if number % 3 == 1)
    assert found("name = 'new'") == ["item-20"]
    assert found("label = 'l2'") == sorted(f"item-{number}" for number in kept if number % 4 == 2)
    assert found("label != 'l2'") == sorted([f"item-{number}" for number in kept if number % 4 != 2] + ["item-20"])
    with index.engine.view() as view:
        assert len(view.state.subsets) <= embedded_filters_kept()


def embedded_filters_kept():
    from cmimh_tf.search.engines import embedded_view

    return embedded_view._FILTERS_KEPT


def test_threads_search_while_another_adds(index, random):
    codes = random_codes(random, 3000)
    index.add_codes(names(1000), image_codes=codes[:1000], metadata={"number": list(range(1000))})
    problems, stop = [], threading.Event()

    def search():
        try:
            while not stop.is_set():
                found = index.search_codes(codes[:20], top=1, where="number >= 0")
                assert found.ids[:, 0].tolist() == names(20)
                hits = index.search(codes=codes[:2], find="images", top=3)
                assert hits[0][0].metadata == {"number": 0}
                assert index.get(["item-5"])[0].id == "item-5"
        except Exception as error:
            problems.append(error)
            raise

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            part = slice(1000 + 100 * number, 1100 + 100 * number)
            index.add_codes(
                names(100, part.start), image_codes=codes[part], metadata={"number": list(range(part.start, part.stop))}
            )
            index.remove(ids=names(10, part.start))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert len(index) == 2800


def test_a_forked_process_reads_with_its_own_connection(index, random):
    index.add_codes(names(10), image_codes=random_codes(random, 10))
    assert len(index) == 10
    child = os.fork()
    if child == 0:
        try:
            code = 0 if len(index) == 10 and index.get(["item-3"])[0].id == "item-3" else 1
        except BaseException:
            code = 2
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    index.add_codes(["later"], image_codes=random_codes(random, 1))
    assert len(index) == 11


def test_the_newest_version_of_a_folder_is_opened(tmp_path, random):
    for version in (2, 10):
        with create_index(tmp_path / "base" / str(version), code_length=32) as made:
            made.add_codes([f"version-{version}"], image_codes=random_codes(random, 1))
    (tmp_path / "base" / "11").mkdir()
    with open_index(tmp_path / "base") as opened:
        assert opened.get(["version-10"])[0].id == "version-10"


def test_an_index_in_a_folder_that_cannot_be_written_is_read(random):
    # Not in a folder of pytest, which only its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with create_index(f"{folder}/index", code_length=32) as made:
            made.add_codes(names(5), image_codes=random_codes(random, 5))
        # As another user, or, without the right to become one, without the right to write.
        become = "os.setgroups([]); os.setgid(65534); os.setuid(65534)"
        if os.geteuid() != 0:
            become = ""
            os.chmod(f"{folder}/index/generation-1", 0o555)
        code = (
            f"import faiss, os, sys; from cmimh_tf.search.api import open_index; {become}\n"
            "index = open_index(sys.argv[1]); print(len(index), index.get(['item-3'])[0].id)\n"
            "try: index.remove(ids=['item-3'])\n"
            "except OSError as error: print(error)\n"
        )
        result = subprocess.run(
            [sys.executable, "-c", code, f"{folder}/index"], capture_output=True, text=True, check=False, timeout=600
        )
        os.chmod(f"{folder}/index/generation-1", 0o755)
    assert result.stdout.startswith("5 item-3\n"), result.stderr
    assert "Permission denied" in result.stdout or "readonly" in result.stdout


def test_wrong_options_are_rejected(index):
    with pytest.raises(ValueError, match="`search` must be one of auto, exact, ivf"):
        open_index(index.address, search="fast")


@pytest.fixture(scope="module")
def clustered():
    random = np.random.default_rng(1)
    centres = random.integers(0, 2, (40, 64), dtype=np.uint8)
    bits = centres[random.integers(0, 40, 5000)] ^ (random.random((5000, 64)) < 0.08)
    return np.packbits(bits, axis=1, bitorder="little")


def recall(found, queries, codes, top=10):
    """The share of results that are as near as the exact ones."""
    exact = np.sort(hamming_distance(queries, codes), axis=1)[:, top - 1 : top]
    return (found.distances <= exact).mean()


def test_inverted_files_are_made_saved_and_kept_up_to_date(tmp_path, clustered, monkeypatch):
    monkeypatch.setattr(embedded, "LEAST_FOR_INVERTED_FILE", 3000)
    index = create_index(tmp_path / "index", code_length=64)
    index.add_codes(names(2000), image_codes=clustered[:2000])
    assert index.info()["search"] == "exact"
    index.add_codes(names(2000, 2000), image_codes=clustered[2000:4000])
    assert index.info()["search"] == "inverted file"
    (saved,) = (tmp_path / "index").rglob("*.faiss")
    assert saved.name == "image-4000.faiss"
    # Few more items: searched beside the file. Removed ones do not appear.
    index.add_codes(names(100, 4000), image_codes=clustered[4000:4100])
    index.remove(ids=names(150))
    assert [path.name for path in (tmp_path / "index").rglob("*.faiss")] == ["image-4000.faiss"]
    with open_index(index.address) as other:
        queries = clustered[100:500]
        found = other.search_codes(queries, top=10)
        assert recall(found, queries, clustered[150:4100]) > 0.95
        assert not set(found.ids.ravel()) & set(names(150))
        assert (other.search_codes(clustered[4000:4100], top=1).distances == 0).all()
        exact = other.search_codes(queries, top=10, exact=True)
        assert recall(exact, queries, clustered[150:4100]) == 1
    # Many more: a new file.
    index.add_codes(names(900, 4100), image_codes=clustered[4100:])
    assert [path.name for path in (tmp_path / "index").rglob("*.faiss")] == ["image-5000.faiss"]
    index.close()


def test_inverted_files_never_return_less_than_there_is(tmp_path, random):
    # A third of the codes is distinct, and a query looks at one list only.
    codes = repeated_codes(random, 3000, 64)
    with create_index(tmp_path / "index", code_length=64) as made:
        made.add_codes(names(3000), image_codes=codes, metadata={"number": list(range(3000))})
    with open_index(tmp_path / "index", search="ivf", num_probes=1) as index:
        assert index.info()["search"] == "inverted file"
        queries = np.concatenate([random_codes(random, 20, 64), codes[:20]])
        for top in (1, 50, 2999, 4000):
            found = index.search_codes(queries, top=top)
            assert found.rows.shape == (40, min(top, 3000))
            assert (found.rows >= 0).all()
            assert all(len(set(row)) == len(row) for row in found.rows.tolist())
        # A filter is always searched exactly.
        found = index.search_codes(queries, top=30, where="number < 30")
        assert found.rows.shape == (40, 30)
        within = index.search_codes(queries[20:], top=5, radius=0)
        assert (within.distances[:, 0] == 0).all()
