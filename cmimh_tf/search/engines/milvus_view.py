"""Searches in Milvus."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.search.engines.interface import Counts, Header, StoredItem, View
from cmimh_tf.search.engines.milvus_filters import hash_text, to_expression
from cmimh_tf.search.engines.nearest import cut_at_radius
from cmimh_tf.search.filters import Condition

if TYPE_CHECKING:
    from cmimh_tf.search.engines.milvus import MilvusEngine

MOST_RESULTS = 16_384
# Of BIN_IVF_FLAT, on a server.
LISTS = 1024
ROWS_AT_ONCE = 1000
HAS_SIDE = {"image": 1, "text": 2}
LISTED = ("id", "row", "caption", "picture", "metadata")
_QUERIES_AT_ONCE = 64


class MilvusView(View):
    """The current collection. Changes that are made meanwhile may be seen."""

    def __init__(self, engine: MilvusEngine, record: dict[str, Any]):
        self.engine = engine
        self.client = engine.client
        self.collection = f"{engine._parsed.name}_g{record['generation']}"
        self.next_row: int = record["next_row"]
        self.header = Header.from_json(record["header"], engine.address)

    def counts(self) -> Counts:
        return Counts(self._count("row >= 0"), self._count("sides in [1, 3]"), self._count("sides in [2, 3]"))

    def _count(self, expression: str) -> int:
        return self.client.query(self.collection, filter=expression, output_fields=["count(*)"])[0]["count(*)"]

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
        if top is not None and top > MOST_RESULTS:
            raise ValueError(f"`top` must be at most {MOST_RESULTS:,} with Milvus. Received: {top}.")
        expression = f"sides in [{HAS_SIDE[side]}, 3]"
        if where is not None:
            expression = f"{expression} and ({self._expression(where)})"
        blocks = [
            self._nearest(side, codes[start : start + _QUERIES_AT_ONCE], top, expression, radius, exact)
            for start in range(0, len(codes), _QUERIES_AT_ONCE)
        ]
        width = max((len(rows) for block in blocks for rows, _ in block), default=0)
        both = np.full((2, len(codes), width), -1, np.int64)
        for query, (rows, distances) in enumerate(result for block in blocks for result in block):
            both[0, query, : len(rows)], both[1, query, : len(rows)] = rows, distances
        rows, distances = both[0], both[1].astype(np.int32)
        return (rows, distances) if radius is None else cut_at_radius(rows, distances, radius)

    def _expression(self, where: Condition) -> str:
        def rows_with(expression: str) -> list[int]:
            return [entity["row"] for entity in self.entities(expression, ["row"])]

        return to_expression(where, rows_with)

    def _nearest(
        self, side: str, codes: np.ndarray, top: int | None, expression: str, radius: int | None, exact: bool
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """(rows, distances) of each query.

        Milvus orders equal distances as it likes. More is fetched than asked for, until the last distance is larger
        than that of the last result: then all items that are equally near are known, and ordered by row.
        """
        limit = MOST_RESULTS if top is None else min(MOST_RESULTS, 2 * top + 100)
        found = self._search(side, codes, limit, expression, exact)
        results = []
        for code, (rows, distances) in zip(codes, found, strict=True):
            last = -1 if top is None or len(rows) <= top else np.sort(distances)[top - 1]
            if top is not None and len(rows) == limit < MOST_RESULTS and distances.max() <= last:
                ((rows, distances),) = self._search(side, code[np.newaxis], MOST_RESULTS, expression, exact)
            if top is None and len(rows) == MOST_RESULTS and distances.max() <= (radius or 0):
                raise ValueError(
                    f"`radius` must leave fewer than {MOST_RESULTS:,} items with Milvus, or `top` must be given. "
                    f"Received: radius={radius}."
                )
            order = np.lexsort((rows, distances))[:top]
            results.append((rows[order], distances[order]))
        return results

    def _search(
        self, side: str, codes: np.ndarray, limit: int, expression: str, exact: bool
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        if not len(codes):
            return []
        # With all lists the search is exact.
        probes = LISTS if exact and self.engine.num_probes else self.engine.num_probes
        found = self.client.search(
            self.collection,
            data=[code.tobytes() for code in codes],
            anns_field=side,
            limit=limit,
            filter=expression,
            output_fields=["row"],
            search_params={"metric_type": "HAMMING", "params": {"nprobe": probes} if probes else {}},
            consistency_level="Strong",
        )
        return [
            (
                np.array([hit["entity"]["row"] for hit in hits], np.int64),
                np.array([hit["distance"] for hit in hits], np.int64),
            )
            for hits in found
        ]

    def entities(self, expression: str, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Entities by ascending row, however many."""
        for start in range(0, self.next_row, ROWS_AT_ONCE):
            window = f"row >= {start} and row < {start + ROWS_AT_ONCE} and ({expression})"
            yield from sorted(self._query(window, fields), key=lambda entity: entity["row"])

    def _query(self, expression: str, fields: Sequence[str]) -> list[dict[str, Any]]:
        return query_entities(self.client, self.collection, expression, fields)

    def _by_row(self, rows: np.ndarray, fields: Sequence[str]) -> list[dict[str, Any]]:
        """Entities of rows, in the order of `rows`."""
        listed = np.asarray(rows).tolist()
        wanted = sorted(set(listed))
        found = {}
        for start in range(0, len(wanted), ROWS_AT_ONCE):
            part = wanted[start : start + ROWS_AT_ONCE]
            for entity in self._query(f"row in {part}", ["row", *fields]):
                found[entity["row"]] = entity
        return [found[row] for row in listed]

    def codes(self, side: str, rows: np.ndarray) -> np.ndarray:
        values = b"".join(entity[side][0] for entity in self._by_row(rows, [side]))
        return np.frombuffer(values, np.uint8).reshape(-1, self.header.code_length // 8)

    def features(self, side: str, rows: np.ndarray) -> np.ndarray:
        values = b"".join(base64.b64decode(entity["features"][side]) for entity in self._by_row(rows, ["features"]))
        return np.frombuffer(values, np.float16).reshape(-1, self.header.code_length)

    def has_side(self, side: str, rows: np.ndarray) -> np.ndarray:
        return np.array([bool(entity["sides"] & HAS_SIDE[side]) for entity in self._by_row(rows, ["sides"])], bool)

    def ids(self, rows: np.ndarray) -> list[str]:
        return [entity["id"] for entity in self._by_row(rows, ["id"])]

    def items(self, rows: np.ndarray) -> list[StoredItem]:
        return [
            StoredItem(
                entity["row"], entity["id"], entity["caption"] or None, entity["picture"] or None, entity["metadata"]
            )
            for entity in self._by_row(rows, LISTED)
        ]

    def rows_of(self, ids: list[str]) -> np.ndarray:
        return rows_of(self.client, self.collection, ids)

    def all_rows(self, where: Condition | None = None) -> np.ndarray:
        expression = "row >= 0" if where is None else self._expression(where)
        return np.array([entity["row"] for entity in self.entities(expression, ["row"])], np.int64)


def query_entities(client: Any, collection: str, expression: str, fields: Sequence[str]) -> list[dict[str, Any]]:
    return client.query(
        collection, filter=expression, output_fields=list(fields), limit=MOST_RESULTS, consistency_level="Strong"
    )


def rows_of(client: Any, collection: str, ids: Sequence[str]) -> np.ndarray:
    found = {}
    for start in range(0, len(ids), ROWS_AT_ONCE):
        keys = ", ".join(f'"{hash_text(name)}"' for name in ids[start : start + ROWS_AT_ONCE])
        for entity in query_entities(client, collection, f"key in [{keys}]", ["id", "row"]):
            found[entity["id"]] = entity["row"]
    return np.array([found.get(name, -1) for name in ids], np.int64)
