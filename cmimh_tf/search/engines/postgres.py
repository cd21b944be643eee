"""An index in PostgreSQL with the extension pgvector, for people who have a database.

    NAME           one row per item: row, id, image bit(L), text bit(L), caption, picture, metadata jsonb, checksum
    NAME_settings  the header and the next row number

Searches are exact up to 50,000 items. Beyond, an IVFFlat index is made, and used for searches without a filter; HNSW is
there on request, but misses items where many have the same code. If an index returns fewer items than asked for, the
search is repeated without it. A change is one transaction.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import numpy as np
import psycopg
from psycopg import sql

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
from cmimh_tf.search.engines.postgres_view import (
    PostgresView,
    bit_strings,
    get_setting,
    num_lists,
    one,
    set_setting,
    settings_table,
)
from cmimh_tf.search.items import SIDES, ItemBatch, ItemError, item_checksum

SEARCHES = ("auto", "exact", "ivfflat", "hnsw")
LEAST_FOR_IVFFLAT = 50_000
DEFAULT_TABLE = "cmimh_index"
# The approximate indexes are made anew when the table has grown so many times.
_GROWTH = 4
_ROWS_AT_ONCE = 10_000
_COPY_COLUMNS = (
    *("row", "id", "image", "text", "image_features", "text_features"),
    *("caption", "picture", "metadata", "checksum"),
)
Query = sql.Composable
Parameters = list[Any]


def create_postgres(address: str, header: Header) -> None:
    """Makes the tables of an empty index.

    Raises:
        FileExistsError: if there is one of this name.
        StorageError: if the server cannot be reached, or lacks pgvector.
    """
    url, table, _ = _parse(address)
    with _database_errors(address), psycopg.connect(url) as connection:
        if one(connection.execute("SELECT to_regclass(%s)", (settings_table(table).as_string(),))) != (None,):
            if get_setting(connection, table, "header").get("complete", True):
                raise FileExistsError(f"{_shown(address)} must not have an index yet. Choose another table.")
            # A build was killed.
            query = sql.SQL("DROP TABLE IF EXISTS {}, {}")
            connection.execute(query.format(sql.Identifier(table), settings_table(table)))
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            raise StorageError(
                f"{_shown(address)} must have the extension pgvector. Install it on the server and run: CREATE "
                f"EXTENSION vector. Received: {_first_line(error)}."
            ) from error
        _create_table(connection, table, header.code_length)
        connection.execute(
            sql.SQL("CREATE TABLE {} (name text PRIMARY KEY, value jsonb NOT NULL)").format(settings_table(table))
        )
        for name, value in (("header", header.to_json()), ("next_row", 1)):
            set_setting(connection, table, name, value)


class PostgresEngine(Engine):
    """An index in a PostgreSQL database, opened.

    Args:
        address: "postgresql://user@host/database?table=NAME". Further parameters go to the server's library.
        search: "exact", "ivfflat", "hnsw", or "auto", which is exact for up to 50,000 items and IVFFlat beyond; may
            also be a parameter of the address.

    Raises:
        IndexNotFound: if the database has no such table.
        StorageError: if the server cannot be reached.
    """

    def __init__(self, address: str, search: str | None = None):
        self._url, self.table, in_address = _parse(address)
        self.search = search or in_address or "auto"
        if self.search not in SEARCHES:
            raise ValueError(f"`search` must be one of {', '.join(SEARCHES)}. Received: {self.search!r}.")
        self.address = _shown(address)
        self._local = threading.local()
        self._opened: list[psycopg.Connection[Any]] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        try:
            with self.view():
                pass
        except BaseException:
            self.close()
            raise

    def _connection(self) -> psycopg.Connection[Any]:
        """This thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is None or connection.closed or connection.broken:
            connection = psycopg.connect(self._url, autocommit=True)
            with self._lock:
                self._opened.append(connection)
            self._local.connection = connection
        return connection

    @contextmanager
    def view(self) -> Iterator[PostgresView]:
        with _database_errors(self.address):
            connection = self._connection()
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                yield PostgresView(self, connection, self._header(connection))

    def _header(self, connection: psycopg.Connection[Any]) -> Header:
        if connection.execute("SELECT to_regclass(%s)", (settings_table(self.table).as_string(),)).fetchone() == (
            None,
        ):
            raise IndexNotFound(
                f"{self.address} must have an index. Received: no table {self.table}. Make one with: python -m "
                "cmimh_tf.index build"
            )
        return Header.from_json(get_setting(connection, self.table, "header"), self.address)

    @contextmanager
    def writing(self) -> Iterator[PostgresWriter]:
        with self._writing, self._locked() as connection:
            with connection.transaction():
                writer = PostgresWriter(connection, self.table, get_setting(connection, self.table, "next_row"))
                yield writer
                set_setting(connection, self.table, "next_row", writer.next_row)
            self._renew_indexes(connection)

    @contextmanager
    def _locked(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection that holds the lock of writers, which ends with it."""
        with _database_errors(self.address), psycopg.connect(self._url, autocommit=True) as connection:
            self._header(connection)
            held = connection.execute(
                "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (f"cmimh_tf.search {self.table}",)
            ).fetchone()
            if held != (True,):
                raise IndexBusy(f"{self.address} is being written by another process. Try again when it is done.")
            yield connection

    def replace_codes(self, make: Callable[[View], tuple[Header, Iterator[ItemBatch]]]) -> None:
        with self._writing, self._locked() as connection:
            new = f"{self.table}_new"
            with connection.transaction():
                with self.view() as view:
                    rows = view.all_rows()
                    header, batches = make(view)
                    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(new)))
                    _create_table(connection, new, header.code_length)
                    done = 0
                    for batch in batches:
                        items = view.items(rows[done : done + len(batch)])
                        _copy(connection, new, batch, items)
                        done += len(batch)
                connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(self.table)))
                connection.execute(
                    sql.SQL("ALTER TABLE {} RENAME TO {}").format(sql.Identifier(new), sql.Identifier(self.table))
                )
                set_setting(connection, self.table, "header", header.to_json())
                connection.execute(sql.SQL("DELETE FROM {} WHERE name = 'indexed'").format(settings_table(self.table)))
            self._renew_indexes(connection)

    def _renew_indexes(self, connection: psycopg.Connection[Any]) -> None:
        """Makes the approximate indexes if the table is large enough, and again when it has grown."""
        table = sql.Identifier(self.table)
        (count,) = one(connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table)))
        kind = self.kind_of_search(count)
        indexed = get_setting(connection, self.table, "indexed") or {"kind": "exact", "items": 0}
        if indexed["kind"] == kind and (kind == "exact" or count < _GROWTH * indexed["items"]):
            return
        with connection.transaction():
            for side in SIDES:
                name = sql.Identifier(f"{self.table}_{side}_nearest")
                connection.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(name))
                if kind != "exact":
                    query = sql.SQL("CREATE INDEX {} ON {} USING {} ({} bit_hamming_ops) {}")
                    options = sql.SQL(f"WITH (lists = {num_lists(count)})" if kind == "ivfflat" else "")
                    connection.execute(query.format(name, table, sql.SQL(kind), sql.Identifier(side), options))
            set_setting(connection, self.table, "indexed", {"kind": kind, "items": count})

    def kind_of_search(self, count: int) -> str:
        """ "exact", "ivfflat" or "hnsw" for a table of so many items."""
        if self.search == "auto":
            return "ivfflat" if count > LEAST_FOR_IVFFLAT else "exact"
        return self.search

    def verify(self) -> list[str]:
        problems = []
        with self.view() as view:
            rows = view.all_rows()
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                problems += view.verify(rows[start : start + _ROWS_AT_ONCE])
            if len(rows) and rows[-1] >= get_setting(view.connection, self.table, "next_row"):
                problems.append(f"The next row must be larger than {rows[-1]:,}.")
        return problems

    def size(self) -> int:
        with self.view() as view:
            names = [sql.Identifier(self.table).as_string(), settings_table(self.table).as_string()]
            query = "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name"
            return int(one(view.connection.execute(query, (names,)))[0])

    def describe(self) -> dict[str, Any]:
        with self.view() as view:
            indexed = get_setting(view.connection, self.table, "indexed") or {"kind": "exact"}
        return {"engine": "postgresql", "search": indexed["kind"]}

    def close(self) -> None:
        with self._lock:
            for connection in self._opened:
                connection.close()
            self._opened.clear()


class PostgresWriter(Writer):
    """Changes of one transaction."""

    def __init__(self, connection: psycopg.Connection[Any], table: str, next_row: int):
        self.connection = connection
        self.table = table
        self.first_row = self.next_row = next_row

    def add(self, batch: ItemBatch) -> int:
        table = sql.Identifier(self.table)
        query = sql.SQL("SELECT row, id FROM {} WHERE id = ANY(%s)").format(table)
        existing = self.connection.execute(query, (batch.ids,)).fetchall()
        for row, name in existing:
            if row >= self.first_row:
                raise ItemError(f"`ids` must not repeat. Received: {name!r} twice.")
        self.remove(np.array([row for row, _ in existing], np.int64))
        _copy(self.connection, self.table, batch, stored_items(batch, self.next_row))
        self.next_row += len(batch)
        return len(existing)

    def remove(self, rows: np.ndarray) -> None:
        if len(rows):
            query = sql.SQL("DELETE FROM {} WHERE row = ANY(%s)").format(sql.Identifier(self.table))
            self.connection.execute(query, (np.asarray(rows).tolist(),))

    def set_header(self, header: Header) -> None:
        set_setting(self.connection, self.table, "header", header.to_json())


@contextmanager
def _database_errors(address: str) -> Iterator[None]:
    """Turns errors of the server into one sentence each."""
    try:
        yield
    except psycopg.errors.DiskFull as error:
        raise StorageError(
            f"{_shown(address)} could not be written because the server's disk is full. The index is as it was before."
        ) from error
    except psycopg.errors.UndefinedTable as error:
        raise IndexNotFound(f"{_shown(address)} must have an index. Received: {_first_line(error)}.") from error
    except psycopg.Error as error:
        raise StorageError(
            f"{_shown(address)} could not be read or written ({_first_line(error)}). The index is unchanged."
        ) from error


def _parse(address: str) -> tuple[str, str, str | None]:
    """The address for the server's library, the table, and the kind of search if it is given."""
    parts = urlsplit(address)
    parameters = dict(parse_qsl(parts.query))
    table = parameters.pop("table", DEFAULT_TABLE)
    search = parameters.pop("search", None)
    if not table or len(table.encode()) > 40:
        raise ValueError(f"`table` must be a name of 1 to 40 bytes. Received: {table!r}.")
    return urlunsplit(parts._replace(query=urlencode(parameters, quote_via=quote))), table, search


def _shown(address: str) -> str:
    """The address without its password."""
    parts = urlsplit(address)
    if parts.password is None:
        return address
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", "@")))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


def _create_table(connection: psycopg.Connection[Any], table: str, code_length: int) -> None:
    query = sql.SQL(
        "CREATE TABLE {} (row bigint PRIMARY KEY, id text NOT NULL UNIQUE, image bit({length}), text bit({length}), "
        "image_features bytea, text_features bytea, caption text, picture text, metadata jsonb NOT NULL, "
        "checksum bigint NOT NULL)"
    )
    connection.execute(query.format(sql.Identifier(table), length=sql.Literal(code_length)))


def _copy(connection: psycopg.Connection[Any], table: str, batch: ItemBatch, items: list[StoredItem]) -> None:
    """Adds the codes of a batch, with the ids and the rest of `items`."""
    sides: dict[str, list[tuple[str | None, bytes | None, bytes | None]]] = {}
    for side in SIDES:
        if side not in batch.codes:
            sides[side] = [(None, None, None)] * len(batch)
            continue
        features: list[bytes | None] = [None] * len(batch)
        if side in batch.features:
            features = [row.tobytes() for row in batch.features[side]]
        codes = batch.codes[side]
        sides[side] = [
            (bits, code.tobytes(), feature) if present else (None, None, None)
            for bits, code, feature, present in zip(
                bit_strings(codes), codes, features, batch.present[side], strict=True
            )
        ]
    names = sql.SQL(", ").join(map(sql.Identifier, _COPY_COLUMNS))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for item, image, text in zip(items, sides["image"], sides["text"], strict=True):
            described = (item.caption, item.picture, item.metadata)
            checksum = item_checksum(item.id, image[1], text[1], image[2], text[2], *described)
            stored = (item.row, item.id, image[0], text[0], image[2], text[2], item.caption, item.picture)
            copy.write_row((*stored, json.dumps(item.metadata, ensure_ascii=False), checksum))
