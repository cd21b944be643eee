"""A new version of the index takes over under load: no request is lost, and no answer mixes versions."""

import os
import threading
import time

import pytest

from serving.search.index_versions import IndexVersions
from tests.search_service.conftest import run_search
from tests.search_service.fake_index import FakeIndex
from tests.serving.http_exchange import PATIENCE


def folder(path):
    path.mkdir()
    (path / "current.json").write_text("{}")
    return path


class Opener:
    """Opens fake indexes, whose name is that of their folder."""

    def __init__(self, pictures):
        self.pictures, self.opened, self.broken = pictures, [], False

    def __call__(self, address, number):
        if self.broken:
            raise ValueError("broken")
        index = FakeIndex(self.pictures, version=number, name=os.path.basename(os.path.realpath(address)))
        for id, item in list(index._items.items()):
            index._items[id] = type(item)(id, f"{index.name}/{item.caption}", item.picture, item.metadata, item.codes)
        self.opened.append(index)
        return index


def version_in_use(versions):
    with versions.acquire() as index:
        return index.version


def test_numbered_versions(tmp_path, pictures):
    opener = Opener(pictures)
    folder(tmp_path / "2")
    folder(tmp_path / "10")
    (tmp_path / "99").write_text("a file")
    (tmp_path / "temporary").mkdir()
    versions = IndexVersions(str(tmp_path), opener, poll_seconds=1000, drain_seconds=PATIENCE)
    versions.start()
    with versions.acquire() as index:
        assert index.version == 10
        versions.poll()
        assert len(opener.opened) == 1
        folder(tmp_path / "11")
        swap = threading.Thread(target=versions.poll)
        swap.start()
        deadline = time.monotonic() + PATIENCE
        while version_in_use(versions) != 11:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # The old version stays open as long as a request uses it.
        assert not index.closed
    swap.join(PATIENCE)
    assert opener.opened[0].closed
    assert not opener.opened[1].closed
    versions.stop()
    assert opener.opened[1].closed
    assert not versions.is_ready()


def test_a_version_that_cannot_be_opened_is_passed_over_until_it_changes(tmp_path, pictures):
    opener = Opener(pictures)
    folder(tmp_path / "1")
    versions = IndexVersions(str(tmp_path), opener, poll_seconds=1000)
    versions.start()
    opener.broken = True
    folder(tmp_path / "2")
    versions.poll()
    opener.broken = False
    versions.poll()
    with versions.acquire() as index:
        assert index.version == 1
    (tmp_path / "2" / "current.json").write_text('{"changed": true}')
    os.utime(tmp_path / "2" / "current.json", ns=(1, 1))
    versions.poll()
    with versions.acquire() as index:
        assert index.version == 2
    versions.stop()


def test_a_missing_or_broken_first_version_is_an_error(tmp_path, pictures):
    opener = Opener(pictures)
    with pytest.raises(FileNotFoundError):
        IndexVersions(str(tmp_path / "nothing"), opener).start()
    opener.broken = True
    with pytest.raises(ValueError, match="broken"):
        IndexVersions(str(tmp_path), opener).start()


def test_a_folder_is_replaced_through_a_link_or_a_rename(tmp_path, pictures):
    opener = Opener(pictures)
    folder(tmp_path / "first")
    folder(tmp_path / "second")
    (tmp_path / "index").symlink_to("first")
    versions = IndexVersions(str(tmp_path / "index"), opener, poll_seconds=1000)
    versions.start()
    (tmp_path / "new").symlink_to("second")
    os.replace(tmp_path / "new", tmp_path / "index")
    versions.poll()
    with versions.acquire() as index:
        assert index.name == "second"
    # In the moment between two renames there is no folder, and the open index stays.
    os.remove(tmp_path / "index")
    versions.poll()
    os.rename(tmp_path / "first", tmp_path / "index")
    versions.poll()
    with versions.acquire() as index:
        assert index.name == "index"
    versions.stop()


def test_swaps_under_load(tmp_path, pictures):
    opener = Opener(pictures)
    base = tmp_path / "base"
    base.mkdir()
    folder(base / "1")
    stop = threading.Event()
    seen, problems = [], []

    def ask(running):
        import httpx

        with httpx.Client(base_url=running.address, timeout=PATIENCE, trust_env=False) as client:
            while not stop.is_set():
                try:
                    response = client.post(
                        "/v1/search", json={"queries": [{"text": "red"}, {"text": "blue"}], "top": 5}
                    )
                    if response.status_code != 200:
                        problems.append(response.text)
                        continue
                    answer = response.json()
                    version = str(answer["index"]["version"])
                    names = {hit["caption"].split("/")[0] for result in answer["results"] for hit in result["hits"]}
                    seen.append(version)
                    if names != {version}:
                        problems.append((version, names))
                except httpx.HTTPError as error:
                    problems.append(repr(error))

    with run_search(opener, base, poll_seconds=0.02) as running:
        threads = [threading.Thread(target=ask, args=(running,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(1, 12):
            (base / str(number)).exists() or folder(base / str(number))
            deadline = time.monotonic() + PATIENCE
            while seen.count(str(number)) < 25 and time.monotonic() < deadline and not problems:
                time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems
    assert {str(number) for number in range(1, 12)} <= set(seen)
    assert all(index.closed for index in opener.opened)
    print(f"{len(seen)} answers over 10 swaps, 0 lost")
