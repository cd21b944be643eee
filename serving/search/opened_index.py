"""One version of an index of `cmimh_tf.search`, opened for the service together with the model that hashes queries."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.search.api import Index
from cmimh_tf.search.engines.addresses import open_engine
from cmimh_tf.search.engines.interface import IndexBusy, IndexDamaged, StorageError, UnknownItem
from cmimh_tf.search.models import ModelMismatch
from cmimh_tf.search.queries import Options
from cmimh_tf.search.queries import Query as IndexQuery
from serving.errors import ServingError, invalid_argument
from serving.search.bodies import RERANK, NewItem, Query, SearchRequest
from serving.search.index_versions import Found, Hit, Item, OpenIndex
from serving.search.remote_model import RemoteModel
from serving.search.settings import SearchSettings

_MOST_VALUES = 50
_ATTEMPTS = 5
# What the model is warmed up with; the picture is a GIF of one pixel.
_WARM_UP = (
    IndexQuery("text", "a picture"),
    IndexQuery("image", bytes.fromhex("47494638396101000100800000ffffff0000002c00000000010001000002024401003b")),
)


def open_version(settings: SearchSettings) -> Callable[[str, int | None], OpenIndex]:
    """The function that opens a version of the index of a service."""

    def open_index(address: str, number: int | None) -> OpenIndex:
        return OpenedIndex(address, number, settings)

    return open_index


class HashedIndex(Index):
    """An index whose queries are hashed in this process, or by a model server. All threads share the model."""

    def __init__(self, address: str, settings: SearchSettings):
        super().__init__(open_engine(address), settings.model_base)
        self._settings = settings
        self._remotes: list[RemoteModel] = []
        self._loading = threading.Lock()

    def model(self) -> Any:
        """The model that made the current codes."""
        with self._loading:
            if self._settings.serving is None:
                return super().model()
            header = self.header
            if not self._remotes or self._remotes[-1].stamp != header.model:
                self._remotes.append(RemoteModel(header, self._settings))
            return self._remotes[-1]

    def close(self) -> None:
        """Closes files and connections."""
        super().close()
        for remote in self._remotes:
            remote.close()


class OpenedIndex:
    """Implements `serving.search.index_versions.OpenIndex`.

    Args:
        address: the folder of the index, or the address of a database.
        number: of the version, or None.
        settings: which model hashes queries.
    """

    def __init__(self, address: str, number: int | None, settings: SearchSettings):
        place = Path(address)
        named = place.parent if number is not None else place
        self._name = address.rpartition("@")[2] if "://" in address else Path(os.path.abspath(named)).name
        self._number = number
        self._index = HashedIndex(address, settings)
        try:
            self._warm_up()
        except BaseException:
            self._index.close()
            raise

    def _warm_up(self) -> None:
        """Loads and compiles the model before the first request. An index of codes needs none."""
        if self._index.header.model is not None:
            self._index.model()
            for query in _WARM_UP:
                # A model may take no texts or no pictures; then queries with them are rejected one by one.
                with contextlib.suppress(ServingError):
                    self._search([query], Options(top=1))

    def facts(self) -> dict[str, Any]:
        with _index_errors(), self._index.engine.view() as view:
            header, counts = view.header, view.counts()
        return {
            "name": self._name,
            "version": self._number,
            "items": counts.items,
            "bits": header.code_length,
            "model": None if header.model is None else header.model.fingerprint,
        }

    def columns(self) -> list[dict[str, Any]]:
        with _index_errors():
            summaries = self._index.column_summaries(_MOST_VALUES)
        described = []
        for summary in summaries:
            column: dict[str, Any] = {"name": summary.name}
            if summary.kind == "number":
                column |= {"type": "number", "range": None if summary.range is None else list(summary.range)}
            else:
                kind = "label" if summary.kind == "labels" else "string"
                column |= {"type": kind, "values": list(summary.values), "complete": summary.complete}
            described.append(column)
        return described

    def rerankings(self) -> list[str]:
        with _index_errors():
            keeps_features = self._index.header.keeps_features
        return [one for one in RERANK if one != "features" or keeps_features]

    def search(self, request: SearchRequest) -> tuple[dict[str, Any], list[Found]]:
        queries = self._checked(request.queries)
        with _index_errors():
            options = Options(request.find, request.top, request.radius, request.where, request.rerank)
            facts, results = self._search(queries, options)
        found = [
            Found(code.tobytes(), [_hit(hit) for hit in hits])
            for code, hits in zip(results.codes, results.per_query, strict=True)
        ]
        return facts, found

    def _search(self, queries: Sequence[IndexQuery], options: Options) -> tuple[dict[str, Any], Any]:
        """Searches. If the codes are replaced by those of another model meanwhile, hashes and searches again."""
        for _ in range(_ATTEMPTS):
            before = self.facts()
            with _index_errors():
                try:
                    results, problem = self._index.search_queries(queries, options), None
                except ValueError as error:
                    results, problem = None, error
                if self.facts()["model"] == before["model"]:
                    if problem is not None:
                        raise problem
                    return before, results
        raise ServingError("UNAVAILABLE", "The model of the index changes too often. Try again later.")

    def _checked(self, queries: Sequence[Query]) -> list[IndexQuery]:
        """The queries for the index. Codes and ids are checked here, so that an error names the query."""
        with _index_errors():
            bits = self._index.code_length
            stored = iter(self._index.get([query.value for query in queries if query.kind == "id"]))
        checked = []
        for query in queries:
            value = query.value
            if query.kind == "code":
                if 4 * len(value) != bits:
                    raise invalid_argument(
                        f"`{query.field()}` must have {bits} bits, {bits // 4} hexadecimal digits, as the index has. "
                        f"Received: {len(value)} digits."
                    )
                value = np.frombuffer(bytes.fromhex(value), np.uint8)
            elif query.kind == "id":
                item = next(stored)
                if item is None:
                    raise ServingError(
                        "NOT_FOUND", f"`{query.field()}` must be the id of an item. Received: {value[:200]!r}."
                    )
                if query.side is not None and query.side not in item.codes:
                    raise invalid_argument(
                        f"`{query.field('side')}` must be one that the item has. Received: {query.side}."
                    )
            checked.append(IndexQuery(query.kind, value, query.side))
        return checked

    def items(self, ids: Sequence[str]) -> list[Item | None]:
        with _index_errors():
            return [None if item is None else _item(item) for item in self._index.get(ids)]

    def sample(self, count: int) -> list[Item]:
        with _index_errors():
            return [_item(item) for item in self._index.sample(count)]

    def add(self, items: Sequence[NewItem]) -> int:
        with _index_errors():
            added = self._index.add(
                [item.id for item in items],
                images=[item.image for item in items],
                texts=[item.text for item in items],
                pictures=[item.picture for item in items],
                metadata=[item.metadata for item in items],
            )
        return added.replaced

    def remove(self, id: str) -> bool:
        with _index_errors():
            return self._index.remove([id]) > 0

    def close(self) -> None:
        self._index.close()


def _item(item: Any) -> Item:
    return Item(item.id, item.caption, item.picture, dict(item.metadata), dict(item.codes))


def _hit(hit: Any) -> Hit:
    item = Item(hit.id, hit.caption, hit.picture, dict(hit.metadata))
    return Hit(item, hit.found, hit.distance, hit.score, hit.code)


@contextlib.contextmanager
def _index_errors() -> Iterator[None]:
    """Turns errors of the index into those that clients see."""
    try:
        yield
    except ServingError:
        raise
    except ModelMismatch as error:
        raise ServingError("FAILED_PRECONDITION", str(error)) from error
    except UnknownItem as error:
        raise ServingError("NOT_FOUND", str(error)) from error
    except IndexBusy as error:
        raise ServingError("ABORTED", f"{error} Try again later.") from error
    except (StorageError, IndexDamaged) as error:
        raise ServingError("UNAVAILABLE", str(error)) from error
    except FileNotFoundError as error:
        raise ServingError("UNAVAILABLE", str(error)) from error
    except (ValueError, TypeError) as error:
        raise invalid_argument(str(error)) from error
