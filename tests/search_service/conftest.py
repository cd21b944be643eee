import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from serving.search.index_versions import OpenIndex
from serving.search.service import running_search
from serving.search.settings import SearchSettings
from tests.search_service.fake_index import FakeIndex
from tests.serving.http_exchange import PATIENCE
from tests.serving.service_thread import in_thread

TOKEN = "a-token-of-the-tests"


@dataclass
class RunningSearch:
    """A service on a free port, the index that it opened first, and a client."""

    address: str
    index: FakeIndex
    client: httpx.Client
    settings: SearchSettings

    def search(self, **body) -> httpx.Response:
        return self.client.post("/v1/search", json=body)


@contextlib.contextmanager
def run_search(
    open_index: Callable[[str, int | None], OpenIndex], index: str | Path, **settings
) -> Iterator[RunningSearch]:
    """Runs a service in a thread of this process."""
    defaults = {"shutdown_timeout": 5, "poll_seconds": 0.1, "request_timeout": PATIENCE}
    options = SearchSettings(index=str(index), port=0, **{**defaults, **settings})
    opened: list[OpenIndex] = []

    def open_and_keep(address: str, number: int | None) -> OpenIndex:
        opened.append(open_index(address, number))
        return opened[-1]

    with in_thread(lambda: running_search(options, open_and_keep)) as port:
        address = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False) as client:
            yield RunningSearch(address, opened[0], client, options)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="module")
def service(pictures, tmp_path_factory) -> Iterator[RunningSearch]:
    """40 items of 8 colours and 5 shapes."""
    folder = tmp_path_factory.mktemp("index")
    with run_search(lambda *_: FakeIndex(pictures), folder, picture_root=pictures, token=TOKEN) as running:
        yield running
