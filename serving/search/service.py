"""The search service: runs searches on threads, writes answers, and starts and stops with the HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from serving.errors import ServingError, invalid_argument
from serving.search.bodies import NewItem, Query, SearchRequest
from serving.search.index_versions import Found, Hit, IndexVersions, Item, OpenIndex
from serving.search.pictures import SIZES, Pictures, Thumbnail, check_picture
from serving.search.settings import SearchSettings
from serving.telemetry import Metrics
from serving.web_server import bind, serving

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_FETCH_SECONDS = 10.0
_QUERIES_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class SearchService:
    """Everything behind the routes. Create it inside the running event loop.

    Args:
        settings: limits, and the folder of pictures.
        versions: the index, opened.
    """

    def __init__(self, settings: SearchSettings, versions: IndexVersions):
        self.settings, self.versions = settings, versions
        self.pictures = Pictures(settings.picture_root, settings.max_pixels, settings.thumbnail_bytes)
        self.metrics = Metrics("cmimh_search_request_count", "cmimh_search_request_latency_microseconds", ("route",))
        self._queries = self.metrics.add_histogram(
            "cmimh_search_queries_per_request", "Distribution of the number of queries per search.", _QUERIES_BOUNDS
        )
        threads = settings.num_threads or len(os.sched_getaffinity(0))
        # Thumbnails have their own threads, so that a page of pictures does not delay a search.
        self._searching = _Threads("search", threads, settings.max_waiting, settings.request_timeout)
        self._drawing = _Threads("thumbnail", threads, settings.max_waiting, settings.request_timeout)
        self._writing = asyncio.Lock()

    async def search(self, request: SearchRequest) -> dict[str, Any]:
        """The answer to a search.

        Raises:
            ServingError: for errors of the request, RESOURCE_EXHAUSTED, or DEADLINE_EXCEEDED.
        """
        self._queries.observe(len(request.queries))
        request = replace(request, queries=tuple([await self._fetched(query) for query in request.queries]))

        def run() -> dict[str, Any]:
            started = time.perf_counter()
            checked = replace(request, queries=tuple(self._checked(query) for query in request.queries))
            with self.versions.acquire() as index:
                facts, found = index.search(checked)
            return {
                "index": facts,
                "seconds": round(time.perf_counter() - started, 6),
                "results": [self._result(query, one) for query, one in zip(request.queries, found, strict=True)],
            }

        return await self._searching.run(run)

    async def indexes(self) -> dict[str, Any]:
        """The open index with its columns, and the limits of this service."""

        def run(index: OpenIndex) -> dict[str, Any]:
            return {**index.facts(), "columns": index.columns(), "rerankings": index.rerankings()}

        names = ("max_queries", "max_top", "max_body_bytes", "max_pixels")
        limits = {name: getattr(self.settings, name) for name in names}
        return {
            "indexes": [await self._with_index(run)],
            "limits": limits,
            "serves_pictures": self.settings.picture_root is not None,
        }

    async def item(self, id: str) -> dict[str, Any]:
        """One item.

        Raises:
            ServingError: NOT_FOUND.
        """
        return self._item(await self._find(id), with_codes=True)

    async def sample(self, count: int) -> dict[str, Any]:
        """Up to `count` items, spread over the index."""
        found = await self._with_index(lambda index: index.sample(count))
        return {"items": [self._item(item, with_codes=True) for item in found]}

    async def thumbnail(self, id: str, size: int) -> Thumbnail:
        """The picture of an item, at most `size` pixels wide and high, rounded up to the next of `SIZES`.

        Raises:
            ServingError: NOT_FOUND.
        """
        item = await self._find(id)
        rounded = next((one for one in SIZES if one >= size), SIZES[-1])
        return await self._drawing.run(lambda: self.pictures.thumbnail(item.picture or "", rounded))

    async def add(self, items: Sequence[NewItem]) -> dict[str, Any]:
        """Adds items, all or none.

        Raises:
            ServingError: for errors of the request.
        """
        max_pixels = self.settings.max_pixels

        def run(index: OpenIndex) -> dict[str, Any]:
            checked = [
                item if item.image is None
                else replace(item, image=check_picture(item.image, f"{item.place}.image", max_pixels))
                for item in items
            ]  # fmt: skip
            replaced = index.add(checked)
            return {"added": len(items), "replaced": replaced, "index": index.facts()}

        async with self._writing:
            return await self._with_index(run)

    async def remove(self, id: str) -> dict[str, Any]:
        """Removes an item.

        Raises:
            ServingError: NOT_FOUND.
        """

        def run(index: OpenIndex) -> dict[str, Any]:
            if not index.remove(id):
                raise _no_item(id)
            return {"removed": 1, "index": index.facts()}

        async with self._writing:
            return await self._with_index(run)

    def close(self) -> None:
        """Waits for running searches."""
        self._searching.close()
        self._drawing.close()

    async def _with_index(self, function: Callable[[OpenIndex], Result]) -> Result:
        def run() -> Result:
            with self.versions.acquire() as index:
                return function(index)

        return await self._searching.run(run)

    async def _find(self, id: str) -> Item:
        item = (await self._with_index(lambda index: index.items([id])))[0]
        if item is None:
            raise _no_item(id)
        return item

    async def _fetched(self, query: Query) -> Query:
        """The query itself, or with the picture that its address names."""
        if query.kind != "image_url":
            return query
        address = urlsplit(query.value)
        if address.scheme not in ("http", "https") or address.hostname not in self.settings.image_url_hosts:
            raise ServingError(
                "PERMISSION_DENIED",
                f"`{query.field()}` must be an http(s) address on one of the hosts that this service allows. "
                f"Received: {query.value[:200]}.",
            )
        limit = self.settings.max_body_bytes
        data = bytearray()
        try:
            # Redirects are not followed: they could lead to a host that is not allowed.
            async with (
                httpx.AsyncClient(timeout=_FETCH_SECONDS, trust_env=False) as client,
                client.stream("GET", query.value) as response,
            ):
                if response.status_code != 200:
                    raise invalid_argument(
                        f"`{query.field()}` must be the address of a picture. Received: status {response.status_code}."
                    )
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > limit:
                        raise invalid_argument(f"`{query.field()}` must have at most {limit} bytes. Received: more.")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise invalid_argument(f"`{query.field()}` cannot be fetched: {type(error).__name__}.") from None
        return Query(query.place, "image", bytes(data), given_as="image_url")

    def _checked(self, query: Query) -> Query:
        if query.kind != "image":
            return query
        return replace(query, value=check_picture(query.value, query.field(), self.settings.max_pixels))

    def _result(self, query: Query, found: Found) -> dict[str, Any]:
        hits = [self._hit(hit, rank) for rank, hit in enumerate(found.hits, 1)]
        return {"query": {**query.echo(), "code": found.code.hex()}, "hits": hits}

    def _hit(self, hit: Hit, rank: int) -> dict[str, Any]:
        return {
            **self._item(hit.item),
            "side": hit.side,
            "rank": rank,
            "distance": hit.distance,
            "score": round(hit.score, 6),
            "code": hit.code.hex(),
        }

    def _item(self, item: Item, with_codes: bool = False) -> dict[str, Any]:
        # No slash is left in the quoted id, so that it stays one part of the path.
        picture = f"/v1/items/{quote(item.id, safe='')}/picture" if self.pictures.is_served(item.picture) else None
        described = {"id": item.id, "caption": item.caption, "picture": picture, "metadata": item.metadata}
        if with_codes:
            described["codes"] = {side: code.hex() for side, code in item.codes.items()}
        return described


class _Threads:
    """Runs functions on a fixed number of threads, and rejects requests when too many are waiting."""

    def __init__(self, name: str, threads: int, max_waiting: int, timeout: float):
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._limit, self._timeout = threads + max_waiting, timeout
        self._running = 0

    async def run(self, function: Callable[[], Result]) -> Result:
        if self._running >= self._limit:
            raise ServingError("RESOURCE_EXHAUSTED", "Too many requests are waiting. Try again later.")
        self._running += 1
        future = self._pool.submit(function)
        loop = asyncio.get_running_loop()

        def ended(_: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._end)

        future.add_done_callback(ended)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._timeout)
        except asyncio.TimeoutError:
            raise ServingError("DEADLINE_EXCEEDED", "The request was not answered in time.") from None

    def _end(self) -> None:
        self._running -= 1

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _no_item(id: str) -> ServingError:
    return ServingError("NOT_FOUND", f"There is no item with the id {id[:200]!r} in the index.")


@contextlib.asynccontextmanager
async def running_search(
    settings: SearchSettings, open_index: Callable[[str, int | None], OpenIndex] | None = None
) -> AsyncIterator[int]:
    """A service that answers requests inside the block; the value is its port.

    Args:
        settings: of the service.
        open_index: opens a version of the index; replaced in tests.

    Raises:
        OSError: if the port is in use.
        ValueError: if the index cannot be opened.
    """
    from serving.search.routes import make_search_app

    if open_index is None:
        from serving.search.opened_index import open_version

        open_index = open_version(settings)
    # The one warns about every malformed form, which the client gets as an error; the other reports its processor.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("faiss").setLevel(logging.WARNING)
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(bind(settings, settings.port))
        port = listener.getsockname()[1]
        versions = IndexVersions(settings.index, open_index, settings.poll_seconds, settings.request_timeout + 5)
        stack.push_async_callback(asyncio.to_thread, versions.stop)
        await asyncio.to_thread(versions.start)
        service = SearchService(settings, versions)
        stack.push_async_callback(asyncio.to_thread, service.close)
        await stack.enter_async_context(serving(make_search_app(service), listener))
        scheme = "http" if settings.tls_certificate is None else "https"
        logger.info("listening", extra={"address": f"{scheme}://{settings.host}:{port}/"})
        yield port
    logger.info("stopped")
