"""An index in Milvus, for collections that outgrow one machine; Milvus Lite, a file, needs no server.

    NAME      one record: the header, the current generation and the next row
    NAME_g1   one entity per item; its key is a hash of the id

Milvus has no transactions. Each batch of items is stored on its own, and an item is replaced in one step; if a process
is killed while it adds items, those of its finished batches stay. New codes for all items go to a new collection, and
the record, which is replaced in one step, then names it.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import os
import secrets
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from cmimh_tf.search.engines.interface import (
    Engine,
    Header,
    IndexBusy,
    IndexNotFound,
    StorageError,
    StoredItem,
    View,
    Writer,
    stored_items,
)
from cmimh_tf.search.engines.milvus_filters import filter_values, hash_text
from cmimh_tf.search.engines.milvus_view import HAS_SIDE, LISTED, LISTS, ROWS_AT_ONCE, MilvusView, rows_of
from cmimh_tf.search.items import SIDES, ItemBatch, ItemError, item_checksum

DEFAULT_COLLECTION = "cmimh_index"
_RECORD = "index"
_WRITER = "writer"
# A writer that was killed holds the index no longer than this.
_LEASE_SECONDS = 60.0
_LONGEST_TEXT = 65_535


@dataclass(frozen=True)
class _Address:
    """A server or a file, and the name of the index in it."""

    uri: str
    name: str
    token: str
    shown: str

    @property
    def is_lite(self) -> bool:
        return not self.uri.startswith("http")


def create_milvus(address: str, header: Header) -> None:
    """Makes the collections of an empty index.

    Raises:
        FileExistsError: if there is one of this name.
        StorageError: if the server cannot be reached.
    """
    parsed = _parse(address)
    with _server_errors(parsed):
        client = _connect(parsed)
        if client.has_collection(parsed.name):
            record = _get(client, parsed, _RECORD)
            if record is not None and record["header"].get("complete", True):
                raise FileExistsError(f"{parsed.shown} must not have an index yet. Choose another collection.")
            # A build was killed.
            _drop(client, parsed.name)
        generation = 1
        _drop(client, f"{parsed.name}_g{generation}")
        _create_items(client, parsed, generation, header.code_length)
        _create_record(client, parsed)
        _put(client, parsed, _RECORD, {"generation": generation, "next_row": 1, "header": header.to_json()})


class MilvusEngine(Engine):
    """An index in Milvus, opened.

    Args:
        address: "milvus://host:19530/NAME", with user:password@ if needed and ?secure=true for TLS, or
            "milvus:///path/file.db?collection=NAME" for Milvus Lite.
        num_probes: how many lists of BIN_IVF_FLAT a query looks at; by default a 16th. Milvus Lite searches exactly.

    Raises:
        IndexNotFound: if there is no such collection.
        StorageError: if the server cannot be reached.
    """

    def __init__(self, address: str, num_probes: int | None = None):
        self._parsed = _parse(address)
        self.address = self._parsed.shown
        # Milvus Lite has no lists.
        self.num_probes = 0 if self._parsed.is_lite else LISTS // 16 if num_probes is None else num_probes
        self._writing = threading.Lock()
        if self._parsed.is_lite and not Path(self._parsed.uri).exists():
            raise self._not_found()
        with _server_errors(self._parsed):
            self.client = _connect(self._parsed)
        with self.view():
            pass

    def _not_found(self) -> IndexNotFound:
        return IndexNotFound(
            f"{self.address} must have an index. Received: no collection {self._parsed.name}. Make one with: python -m "
            "cmimh_tf.index build"
        )

    @contextmanager
    def view(self) -> Iterator[MilvusView]:
        with _server_errors(self._parsed):
            yield MilvusView(self, self._record())

    def _record(self) -> dict[str, Any]:
        found = _get(self.client, self._parsed, _RECORD) if self.client.has_collection(self._parsed.name) else None
        if found is None:
            raise self._not_found()
        return found

    @contextmanager
    def writing(self) -> Iterator[MilvusWriter]:
        with _server_errors(self._parsed), self._writing, self._locked():
            writer = MilvusWriter(self.client, self._parsed, self._record())
            try:
                yield writer
            finally:
                self.client.flush(writer.collection)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the index by a record that expires, and is renewed meanwhile.

        Milvus cannot test and set in one step, so that two processes that start within the same milliseconds could
        both pass.
        """
        token = secrets.token_hex(8)
        held = _get(self.client, self._parsed, _WRITER)
        if held is not None and held["until"] > time.time():
            raise IndexBusy(
                f"{self.address} is being written by another process ({held['process']}). Try again when it is done; "
                f"if it was killed, in {math.ceil(held['until'] - time.time())} seconds."
            )
        process = f"{socket.gethostname()}, process {os.getpid()}"

        def renew() -> None:
            until = time.time() + _LEASE_SECONDS
            _put(self.client, self._parsed, _WRITER, {"token": token, "process": process, "until": until})

        renew()
        done = threading.Event()

        def keep_renewing() -> None:
            while not done.wait(_LEASE_SECONDS / 3):
                renew()

        thread = threading.Thread(target=keep_renewing, name="milvus-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            _put(self.client, self._parsed, _WRITER, {"token": token, "process": process, "until": 0})

    def replace_codes(self, make: Callable[[View], tuple[Header, Iterator[ItemBatch]]]) -> None:
        with _server_errors(self._parsed), self._writing, self._locked(), self.view() as view:
            rows = view.all_rows()
            header, batches = make(view)
            record = self._record()
            generation = record["generation"] + 1
            new = f"{self._parsed.name}_g{generation}"
            _drop(self.client, new)
            _create_items(self.client, self._parsed, generation, header.code_length)
            try:
                done = 0
                for batch in batches:
                    for start in range(0, len(batch), ROWS_AT_ONCE):
                        part = batch.slice(start, start + ROWS_AT_ONCE)
                        items = view.items(rows[done : done + len(part)])
                        self.client.upsert(new, _entities(part, items))
                        done += len(part)
            except BaseException:
                _drop(self.client, new)
                raise
            self.client.flush(new)
            changed = {**record, "generation": generation, "header": header.to_json()}
            _put(self.client, self._parsed, _RECORD, changed)
            _drop(self.client, f"{self._parsed.name}_g{record['generation']}")

    def verify(self) -> list[str]:
        problems = []
        with self.view() as view:
            for entity in view.entities("row >= 0", (*LISTED, "image", "text", "sides", "features", "checksum")):
                if _checksum(entity) != entity["checksum"]:
                    problems.append(f"Item {entity['id']!r} does not match its checksum.")
        return problems

    def size(self) -> int:
        """Bytes of the file of Milvus Lite; a server does not say."""
        if not self._parsed.is_lite:
            return 0
        return sum(
            path.stat().st_size for path in Path(self._parsed.uri).parent.glob(f"{Path(self._parsed.uri).name}*")
        )

    def describe(self) -> dict[str, Any]:
        return {"engine": "milvus", "search": "exact" if self._parsed.is_lite else "BIN_IVF_FLAT"}

    def close(self) -> None:
        """Leaves the connection open: all handles of a process share it."""


class MilvusWriter(Writer):
    """Changes, stored batch by batch."""

    def __init__(self, client: Any, parsed: _Address, record: dict[str, Any]):
        self.client = client
        self.parsed = parsed
        self.record = record
        self.collection = f"{parsed.name}_g{record['generation']}"
        self.first_row = record["next_row"]

    def add(self, batch: ItemBatch) -> int:
        existing = rows_of(self.client, self.collection, batch.ids)
        again = existing >= self.first_row
        if again.any():
            raise ItemError(f"`ids` must not repeat. Received: {batch.ids[int(np.argmax(again))]!r} twice.")
        first = self.record["next_row"]
        entities = _entities(batch, stored_items(batch, first))
        # The numbers are taken before they are used: a killed process leaves a gap, not two items of one number.
        self._change(next_row=first + len(batch))
        for start in range(0, len(entities), ROWS_AT_ONCE):
            self.client.upsert(self.collection, entities[start : start + ROWS_AT_ONCE])
        return int((existing >= 0).sum())

    def remove(self, rows: np.ndarray) -> None:
        listed = np.asarray(rows).tolist()
        for start in range(0, len(listed), ROWS_AT_ONCE):
            self.client.delete(self.collection, filter=f"row in {listed[start : start + ROWS_AT_ONCE]}")

    def set_header(self, header: Header) -> None:
        self._change(header=header.to_json())

    def _change(self, **values: Any) -> None:
        self.record = {**self.record, **values}
        _put(self.client, self.parsed, _RECORD, self.record)


def _entities(batch: ItemBatch, items: list[StoredItem]) -> list[dict[str, Any]]:
    width = next(iter(batch.codes.values())).shape[1]
    entities = []
    for index, item in enumerate(items):
        present = {side: side in batch.codes and bool(batch.present[side][index]) for side in SIDES}
        features = {
            side: base64.b64encode(batch.features[side][index].tobytes()).decode()
            for side in batch.features
            if present[side]
        }
        entity = {
            "key": hash_text(item.id),
            "id": item.id,
            "row": item.row,
            "sides": sum(HAS_SIDE[side] for side in SIDES if present[side]),
            **{side: batch.codes[side][index].tobytes() if present[side] else bytes(width) for side in SIDES},
            "features": features,
            "caption": item.caption or "",
            "picture": item.picture or "",
            "metadata": item.metadata,
            "filter": filter_values(item),
        }
        for name, text in (("caption", item.caption), ("picture", item.picture)):
            if len((text or "").encode()) > _LONGEST_TEXT:
                raise ItemError(f"`{name}` must have at most {_LONGEST_TEXT:,} bytes with Milvus, for id {item.id!r}.")
        entities.append({**entity, "checksum": _checksum(entity)})
    return entities


def _checksum(entity: dict[str, Any]) -> int:
    codes: list[bytes | None] = []
    features: list[bytes | None] = []
    for side in SIDES:
        code = entity[side][0] if isinstance(entity[side], list) else entity[side]
        codes.append(code if entity["sides"] & HAS_SIDE[side] else None)
        encoded = entity["features"].get(side)
        features.append(None if encoded is None else base64.b64decode(encoded))
    described = (entity["caption"] or None, entity["picture"] or None, entity["metadata"])
    return item_checksum(entity["id"], codes[0], codes[1], features[0], features[1], *described)


@contextmanager
def _server_errors(parsed: _Address) -> Iterator[None]:
    """Turns errors of the server into one sentence each."""
    import grpc
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except (MilvusException, grpc.RpcError) as error:
        message = getattr(error, "message", None) or str(error).strip().partition("\n")[0]
        raise StorageError(f"{parsed.shown} could not be read or written ({message.strip().rstrip('.')}).") from error


def _parse(address: str) -> _Address:
    parts = urlsplit(address)
    parameters = dict(parse_qsl(parts.query))
    secure = parameters.pop("secure", "false") == "true"
    collection = parameters.pop("collection", None)
    if parameters:
        raise ValueError(f"`address` must have the parameters collection and secure only. Received: {address}.")
    if parts.hostname is None:
        if not parts.path.endswith(".db"):
            raise ValueError(f"`address` must be milvus://HOST:PORT/NAME or milvus:///PATH.db. Received: {address}.")
        parsed = _Address(parts.path, collection or DEFAULT_COLLECTION, "", address)
    else:
        port = parts.port or 19530
        host = f"{'https' if secure else 'http'}://{parts.hostname}:{port}"
        token = f"{parts.username}:{parts.password}" if parts.username else ""
        shown = f"milvus://{parts.hostname}:{port}{parts.path}"
        parsed = _Address(host, collection or parts.path.strip("/") or DEFAULT_COLLECTION, token, shown)
    if not parsed.name.isidentifier() or not parsed.name.isascii() or len(parsed.name) > 200:
        raise ValueError(f"`collection` must be a name of letters, digits and _. Received: {parsed.name!r}.")
    return parsed


@functools.lru_cache(maxsize=16)
def _connect(parsed: _Address) -> Any:
    """A client. pymilvus shares one connection among all clients of an address, and closes it with the first."""
    with warnings.catch_warnings():
        # Milvus Lite imports pkg_resources, which announces its end.
        warnings.simplefilter("ignore")
        from pymilvus import MilvusClient

        if parsed.is_lite:
            Path(parsed.uri).parent.mkdir(parents=True, exist_ok=True)
        return MilvusClient(uri=parsed.uri, token=parsed.token)


def _drop(client: Any, collection: str) -> None:
    if client.has_collection(collection):
        client.drop_collection(collection)


def _create_items(client: Any, parsed: _Address, generation: int, code_length: int) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=32)
    schema.add_field("id", DataType.VARCHAR, max_length=1000)
    schema.add_field("row", DataType.INT64)
    schema.add_field("sides", DataType.INT8)
    for name in ("caption", "picture"):
        schema.add_field(name, DataType.VARCHAR, max_length=_LONGEST_TEXT)
    for name in ("metadata", "filter", "features"):
        schema.add_field(name, DataType.JSON)
    schema.add_field("checksum", DataType.INT64)
    parameters = client.prepare_index_params()
    for side in SIDES:
        schema.add_field(side, DataType.BINARY_VECTOR, dim=code_length)
        kind, options = ("BIN_FLAT", {}) if parsed.is_lite else ("BIN_IVF_FLAT", {"nlist": LISTS})
        parameters.add_index(side, index_type=kind, metric_type="HAMMING", params=options)
    if not parsed.is_lite:
        parameters.add_index("row", index_type="STL_SORT")
    client.create_collection(
        f"{parsed.name}_g{generation}", schema=schema, index_params=parameters, consistency_level="Strong"
    )


def _create_record(client: Any, parsed: _Address) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=100)
    schema.add_field("value", DataType.VARCHAR, max_length=_LONGEST_TEXT)
    # A collection must have a vector.
    schema.add_field("unused", DataType.BINARY_VECTOR, dim=8)
    parameters = client.prepare_index_params()
    parameters.add_index("unused", index_type="BIN_FLAT", metric_type="HAMMING")
    client.create_collection(parsed.name, schema=schema, index_params=parameters, consistency_level="Strong")


def _put(client: Any, parsed: _Address, name: str, value: dict[str, Any]) -> None:
    client.upsert(parsed.name, [{"name": name, "value": json.dumps(value), "unused": b"\0"}])


def _get(client: Any, parsed: _Address, name: str) -> Any:
    found = client.query(
        parsed.name, filter=f'name == "{name}"', output_fields=["value"], limit=1, consistency_level="Strong"
    )
    return json.loads(found[0]["value"]) if found else None
