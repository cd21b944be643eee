"""Searches in PostgreSQL, inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
from psycopg import sql

from cmimh_tf.codes import pack_bits, unpack_codes
from cmimh_tf.search.engines.interface import Counts, Header, StoredItem, View
from cmimh_tf.search.engines.nearest import cut_at_radius
from cmimh_tf.search.filters import FIELDS, LABELS, NUMBER, AllOf, Comparison, Condition
from cmimh_tf.search.items import item_checksum

if TYPE_CHECKING:
    from cmimh_tf.search.engines.postgres import PostgresEngine

_LARGEST_EF_SEARCH = 1000
_LEAST_PROBES = 8

Query = sql.Composable
Parameters = list[Any]


class PostgresView(View):
    """The index as one transaction sees it."""

    def __init__(self, engine: PostgresEngine, connection: psycopg.Connection[Any], header: Header):
        self.engine = engine
        self.connection = connection
        self.header = header
        self.table = sql.Identifier(engine.table)

    def _select(self, columns: str, rest: Query, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        query = sql.SQL("SELECT {} FROM {} {}").format(sql.SQL(columns), self.table, rest)
        return self.connection.execute(query, parameters).fetchall()

    def counts(self) -> Counts:
        return Counts(*self._select("count(*), count(image), count(text)", sql.SQL(""))[0])

    def nearest(
        self,
        side: str,
        codes: np.ndarray,
        top: int | None,
        *,
        where: Condition | None = None,
        radius: int | None = None,
        exact: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        indexed = get_setting(self.connection, self.engine.table, "indexed") or {"kind": "exact", "items": 0}
        approximate = not (exact or top is None or where is not None or self.engine.search == "exact")
        kind = indexed["kind"] if approximate else "exact"
        if kind != "exact":
            self._prepare(kind, top or 0, indexed["items"])
        condition, parameters = (sql.SQL("TRUE"), []) if where is None else to_sql(where)
        found = []
        for bits in bit_strings(codes):
            result: list[tuple[int, int]] = []
            if kind != "exact":
                result = self._approximate(side, bits, top)
            if kind == "exact" or len(result) < (top or 0):
                result = self._exact(side, bits, top, condition, parameters, radius)
            found.append(result)
        rows, distances = _padded(found)
        return (rows, distances) if radius is None else cut_at_radius(rows, distances, radius)

    def _prepare(self, kind: str, top: int, items: int) -> None:
        """Settings with which a LIMIT is filled, for this transaction."""
        if kind == "hnsw":
            settings = {
                "hnsw.ef_search": min(_LARGEST_EF_SEARCH, max(100, 2 * top)),
                "hnsw.iterative_scan": "relaxed_order",
                "hnsw.max_scan_tuples": max(20_000, 20 * top),
            }
        else:
            lists = num_lists(items)
            # Where many results are asked for, the lists that are looked at must hold a few times more.
            probes = min(lists, max(_LEAST_PROBES, lists // 8, 4 * lists * top // max(1, items)))
            settings = {"ivfflat.probes": probes, "ivfflat.iterative_scan": "relaxed_order"}
        # The settings exist once the library is loaded, which the first operator does.
        self.connection.execute("SELECT B'1' <~> B'1'")
        for name, value in settings.items():
            self.connection.execute("SELECT set_config(%s, %s, true)", (name, str(value)))

    def _approximate(self, side: str, bits: str, top: int | None) -> list[tuple[int, int]]:
        query = sql.SQL(
            "SELECT row, distance::int FROM (SELECT row, {side} <~> %s::bit({length}) AS distance FROM {table} "
            "WHERE {side} IS NOT NULL ORDER BY {side} <~> %s::bit({length}) LIMIT %s) AS nearest ORDER BY 2, 1"
        ).format(side=sql.Identifier(side), table=self.table, length=sql.Literal(self.header.code_length))
        return self.connection.execute(query, (bits, bits, top)).fetchall()

    def _exact(
        self, side: str, bits: str, top: int | None, condition: Query, parameters: Parameters, radius: int | None
    ) -> list[tuple[int, int]]:
        # An expression over the distance keeps an approximate index from being used.
        query = sql.SQL(
            "SELECT row, ({side} <~> %s::bit({length}))::int AS distance FROM {table} WHERE {side} IS NOT NULL "
            "AND ({side} <~> %s::bit({length}))::int <= %s AND ({condition}) ORDER BY 2, 1 LIMIT %s"
        ).format(
            side=sql.Identifier(side),
            table=self.table,
            length=sql.Literal(self.header.code_length),
            condition=condition,
        )
        most = self.header.code_length if radius is None else radius
        return self.connection.execute(query, (bits, bits, most, *parameters, top)).fetchall()

    def _by_row(self, columns: str, rows: np.ndarray) -> list[tuple[Any, ...]]:
        """Columns of rows, in the order of `rows`."""
        listed = np.asarray(rows).tolist()
        found = {
            values[0]: values[1:]
            for values in self._select(f"row, {columns}", sql.SQL("WHERE row = ANY(%s)"), (sorted(set(listed)),))
        }
        return [found[row] for row in listed]

    def codes(self, side: str, rows: np.ndarray) -> np.ndarray:
        if not len(rows):
            return np.empty((0, self.header.code_length // 8), np.uint8)
        return _codes([bits for (bits,) in self._by_row(f"{side}::text", rows)])

    def features(self, side: str, rows: np.ndarray) -> np.ndarray:
        values = b"".join(value for (value,) in self._by_row(f"{side}_features", rows))
        return np.frombuffer(values, np.float16).reshape(-1, self.header.code_length)

    def has_side(self, side: str, rows: np.ndarray) -> np.ndarray:
        return np.array([known for (known,) in self._by_row(f"{side} IS NOT NULL", rows)], bool)

    def ids(self, rows: np.ndarray) -> list[str]:
        return [name for (name,) in self._by_row("id", rows)]

    def items(self, rows: np.ndarray) -> list[StoredItem]:
        found = self._by_row("id, caption, picture, metadata", rows)
        return [StoredItem(int(row), *values) for row, values in zip(rows, found, strict=True)]

    def rows_of(self, ids: list[str]) -> np.ndarray:
        found = dict(self._select("id, row", sql.SQL("WHERE id = ANY(%s)"), (ids,)))
        return np.array([found.get(name, -1) for name in ids], np.int64)

    def all_rows(self, where: Condition | None = None) -> np.ndarray:
        condition, parameters = (sql.SQL("TRUE"), []) if where is None else to_sql(where)
        found = self._select("row", sql.SQL("WHERE {} ORDER BY row").format(condition), parameters)
        return np.array([row for (row,) in found], np.int64)

    def verify(self, rows: np.ndarray) -> list[str]:
        """Compares some rows with their checksums."""
        columns = "id, image::text, text::text, image_features, text_features, caption, picture, metadata, checksum"
        problems = []
        for name, *bits, first, second, caption, picture, metadata, checksum in self._by_row(columns, rows):
            image, text = (None if side is None else _codes([side]).tobytes() for side in bits)
            if item_checksum(name, image, text, first, second, caption, picture, metadata) != checksum:
                problems.append(f"Item {name!r} does not match its checksum.")
        return problems


def settings_table(table: str) -> sql.Identifier:
    return sql.Identifier(f"{table}_settings")


def one(cursor: psycopg.Cursor[Any]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return row


def get_setting(connection: psycopg.Connection[Any], table: str, name: str) -> Any:
    query = sql.SQL("SELECT value FROM {} WHERE name = %s").format(settings_table(table))
    found = connection.execute(query, (name,)).fetchone()
    return found and found[0]


def set_setting(connection: psycopg.Connection[Any], table: str, name: str, value: Any) -> None:
    query = sql.SQL("INSERT INTO {} VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value")
    connection.execute(query.format(settings_table(table)), (name, json.dumps(value)))


def num_lists(count: int) -> int:
    """As pgvector advises: rows / 1000 up to a million."""
    return max(16, min(count // 1000, int(count**0.5)))


def bit_strings(codes: np.ndarray) -> list[str]:
    """Codes as strings of 0 and 1, the first bit first."""
    characters = (unpack_codes(codes) + ord("0")).tobytes().decode("ascii")
    length = 8 * codes.shape[1]
    return [characters[start : start + length] for start in range(0, len(characters), length)]


def _codes(bit_strings: list[str]) -> np.ndarray:
    characters = np.frombuffer("".join(bit_strings).encode("ascii"), np.uint8)
    return pack_bits(characters.reshape(len(bit_strings), -1) - ord("0"))


def _padded(found: list[list[tuple[int, int]]]) -> tuple[np.ndarray, np.ndarray]:
    """Lists of (row, distance) as two arrays, filled up with -1."""
    longest = max(map(len, found), default=0)
    both = np.full((2, len(found), longest), -1, np.int64)
    for query, result in enumerate(found):
        if result:
            both[:, query, : len(result)] = np.array(result).T
    return both[0], both[1].astype(np.int32)


def to_sql(condition: Condition) -> tuple[Query, Parameters]:
    """A condition, bound to the columns, as SQL: no value and no name of a column becomes part of its text."""
    if isinstance(condition, Comparison):
        return _comparison(condition)
    parts = [to_sql(part) for part in condition.parts]
    word = sql.SQL(" AND " if isinstance(condition, AllOf) else " OR ")
    joined = word.join(sql.SQL("({})").format(part) for part, _ in parts)
    return joined, [parameter for _, parameters in parts for parameter in parameters]


def _comparison(comparison: Comparison) -> tuple[Query, Parameters]:
    operator, values = comparison.operator, list(comparison.values)
    name: Parameters = [comparison.column]
    if comparison.kind == LABELS:
        if operator in ("is null", "is not null"):
            return sql.SQL("NOT metadata ? %s" if operator == "is null" else "metadata ? %s"), name
        having = "coalesce(metadata->%s ?| %s::text[], FALSE)"
        return sql.SQL(having if operator in ("=", "in") else f"NOT {having}"), [*name, values]
    if comparison.column in FIELDS:
        column: Query = sql.SQL('{} COLLATE "C"').format(sql.Identifier(comparison.column))
        name = []
    elif comparison.kind == NUMBER:
        column = sql.SQL("(metadata->>%s)::double precision")
    else:
        column = sql.SQL('(metadata->>%s) COLLATE "C"')
    if operator in ("is null", "is not null"):
        return sql.SQL("{} {}").format(column, sql.SQL(operator.upper())), name
    array = "%s::double precision[]" if comparison.kind == NUMBER else "%s::text[]"
    if operator in ("in", "not in"):
        one_of = sql.SQL(f"= ANY({array})" if operator == "in" else f"<> ALL({array})")
        return sql.SQL("{} {}").format(column, one_of), [*name, values]
    if operator in ("like", "not like"):
        return sql.SQL("{} {} %s ESCAPE ''").format(column, sql.SQL(operator.upper())), [*name, *values]
    symbol = {"!=": "<>"}.get(operator, operator)
    return sql.SQL("{} {} %s").format(column, sql.SQL(symbol)), [*name, *values]
