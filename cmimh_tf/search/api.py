"""`Index`: what programs use to search and change an index, whatever engine stores it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.codes import check_code_length, check_codes
from cmimh_tf.search.engines.addresses import create_engine, open_engine
from cmimh_tf.search.engines.interface import ColumnSummary, Engine, Header, IndexNotFound, ModelStamp, View
from cmimh_tf.search.filters import FIELDS, bind, parse_filter
from cmimh_tf.search.items import SIDES, ItemBatch, check_id, make_batch
from cmimh_tf.search.queries import Options, Query, check_code_width, hits_of, rank, stored_queries
from cmimh_tf.search.results import Added, Hit, Item, Neighbours, Results

if TYPE_CHECKING:
    from cmimh_tf.search.models import HashingModel

_ITEMS_AT_ONCE = 65_536


class Index:
    """An index of binary codes, opened.

    Use `open_index` or `create_index`. Threads may share an index. Searches see the changes that other processes have
    committed.

    Args:
        engine: that stores it.
        model: the path of the model that hashes queries; None uses the one that made the index.
    """

    def __init__(self, engine: Engine, model: str | Path | None = None):
        self.engine = engine
        self._model_path = model
        self._model: HashingModel | None = None

    @property
    def address(self) -> str:
        """The folder, or the address of the database."""
        return self.engine.address

    @property
    def header(self) -> Header:
        """Code length, model, columns and sources."""
        with self.engine.view() as view:
            return view.header

    @property
    def code_length(self) -> int:
        """The number of bits."""
        return self.header.code_length

    @property
    def columns(self) -> dict[str, str]:
        """What filters can use: "number", "string" or "labels" by name."""
        return {**FIELDS, **self.header.columns}

    def __len__(self) -> int:
        with self.engine.view() as view:
            return view.counts().items

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes files and connections."""
        self.engine.close()

    def __repr__(self) -> str:
        return f"Index({self.address!r}, {len(self):,} items of {self.code_length} bits)"

    def model(self) -> HashingModel:
        """The model that hashes queries, loaded on first use.

        Raises:
            ModelMismatch: if it is not the model that made the index.
            FileNotFoundError: if it is no longer there.
        """
        from cmimh_tf.search.models import model_of_index

        header = self.header
        fingerprint = header.model and header.model.fingerprint
        if self._model is None or (fingerprint and self._model.stamp.fingerprint != fingerprint):
            self._model = model_of_index(header, self.address, self._model_path)
        return self._model

    def search(
        self,
        *,
        text: str | None = None,
        texts: Sequence[str] = (),
        image: Any = None,
        images: Sequence[Any] = (),
        id: str | int | None = None,
        ids: Sequence[str | int] = (),
        codes: Any = None,
        find: str | None = None,
        top: int | None = 10,
        radius: int | None = None,
        where: str | None = None,
        rerank: str = "asymmetric",
        exact: bool = False,
    ) -> Results:
        """Finds the items nearest to texts, pictures, other items or codes.

        Args:
            text, texts: captions to search with, or their vectors.
            image, images: pictures to search with: paths, the bytes of JPEG, PNG, GIF or BMP files, or vectors.
            id, ids: items of the index to search with; an item is not a result of its own query.
            codes: uint8 [Q, L/8], packed codes to search with.
            find: "images", "texts" or "both". By default a text finds images, a picture finds texts, and ids and codes
                find both.
            top: how many hits per query; None for all within `radius`.
            radius: only items within this Hamming distance.
            where: a filter, such as "label = 'dog' and year >= 2020"; see `cmimh_tf.search.filters`.
            rerank: "asymmetric", "features" (for indexes that keep features) or "none". Queries without real values,
                such as codes, are ranked by Hamming distance.
            exact: use no approximate index.

        Returns:
            The hits, in the order texts, images, ids, codes of the queries.

        Raises:
            FilterError: if the filter cannot be parsed or names an unknown column.
            ModelMismatch: if the model is not the one that made the index.
            TypeError: for one string instead of a list.
            UnknownItem: for an id that is not in the index.
        """
        _check_lists(texts=texts, images=images, ids=ids)
        queries = [Query("text", one) for one in (*([] if text is None else [text]), *texts)]
        queries += [Query("image", one) for one in (*([] if image is None else [image]), *images)]
        queries += [Query("id", check_id(one)) for one in (*([] if id is None else [id]), *ids)]
        queries += [Query("code", one) for one in ([] if codes is None else check_codes(codes))]
        return self.search_queries(queries, Options(find, top, radius, where, rerank, exact))

    def search_queries(self, queries: Sequence[Query], options: Options) -> Results:
        """As `search`, for queries of several kinds in any order; all are answered from the same state."""
        if not queries:
            raise ValueError("`search` must get a text, an image, an id or a code to search with. Received: none.")
        with self.engine.view() as view:
            # Before a model is loaded.
            options.condition(view.header)
        places: dict[str, list[int]] = {}
        for place, query in enumerate(queries):
            places.setdefault(query.kind, []).append(place)
        hashed = {}
        for kind in ("text", "image"):
            values = [queries[place].value for place in places.get(kind, ())]
            if values:
                hashed[kind] = self.model().hash_texts(values) if kind == "text" else self.model().hash_images(values)
        hits: list[list[Hit]] = [[] for _ in queries]
        with self.engine.view() as view:
            all_codes = np.empty((len(queries), view.header.code_length // 8), np.uint8)
            for kind, at in places.items():
                logits: np.ndarray | None = None
                own: np.ndarray | None = None
                if kind == "id":
                    codes, logits, own = stored_queries(view, [queries[place] for place in at])
                elif kind == "code":
                    codes = check_codes(np.stack([queries[place].value for place in at]))
                else:
                    codes, logits = hashed[kind]
                check_code_width(codes, view.header)
                all_codes[at] = codes
                ranked = rank(view, options.sides(kind, view), codes, logits, options, own)
                for place, found in zip(at, hits_of(view, ranked), strict=True):
                    hits[place] = found
        return Results(hits, all_codes)

    def search_codes(
        self,
        codes: Any,
        *,
        find: str = "images",
        top: int | None = 10,
        radius: int | None = None,
        where: str | None = None,
        logits: Any = None,
        rerank: str = "asymmetric",
        exact: bool = False,
    ) -> Neighbours:
        """Finds the items nearest to codes; arrays in, arrays out, for thousands of queries at a time.

        Args:
            codes: uint8 [Q, L/8], packed codes.
            find, top, radius, where, exact: as for `search`.
            logits: float [Q, L], the real values behind the codes; None ranks by Hamming distance.
            rerank: how to use the logits.
        """
        queries = check_codes(codes)
        options = Options(find, top, radius, where, rerank, exact)
        values = None if logits is None else np.asarray(logits, np.float32)
        if values is not None and values.shape != (len(queries), 8 * queries.shape[1]):
            raise ValueError(
                f"`logits` must have shape [{len(queries)}, {8 * queries.shape[1]}]. Received: {values.shape}."
            )
        with self.engine.view() as view:
            check_code_width(queries, view.header)
            ranked = rank(view, options.sides("code", view), queries, values, options)
            resolve = view.ids_later(ranked.rows[ranked.rows >= 0])
        return Neighbours(ranked.distances, ranked.scores, ranked.sides, ranked.rows, resolve)

    def get(self, ids: Sequence[str | int]) -> list[Item | None]:
        """What is stored about items, by their ids; None for those that are not there."""
        _check_lists(ids=ids)
        with self.engine.view() as view:
            rows = view.rows_of([check_id(name) for name in ids])
            found = iter(_items(view, rows[rows >= 0]))
        return [next(found) if row >= 0 else None for row in rows]

    def check_ids(self, ids: Sequence[str | int]) -> None:
        """Raises UnknownItem for an id that is not in the index."""
        _check_lists(ids=ids)
        with self.engine.view() as view:
            stored_queries(view, [Query("id", check_id(name)) for name in ids])

    def sample(self, count: int) -> list[Item]:
        """Up to `count` items, spread evenly over the order of insertion."""
        with self.engine.view() as view:
            rows = view.all_rows()
            chosen = np.linspace(0, len(rows) - 1, min(count, len(rows)), dtype=np.int64)
            return _items(view, rows[chosen])

    def column_summaries(self, most: int = 50) -> list[ColumnSummary]:
        """The metadata columns with their most frequent values, or the range of their numbers."""
        with self.engine.view() as view:
            return [view.summarise(name, kind, most) for name, kind in view.header.columns.items()]

    def add_codes(
        self,
        ids: Any,
        *,
        image_codes: Any = None,
        text_codes: Any = None,
        has_image: Any = None,
        has_text: Any = None,
        image_features: Any = None,
        text_features: Any = None,
        captions: Sequence[str | None] | None = None,
        pictures: Sequence[str | None] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | Mapping[str, Sequence[Any]] | None = None,
    ) -> Added:
        """Adds items whose codes are known, all or none. An item with the id of another one replaces it.

        Args:
            ids: N strings or integers, no two equal.
            image_codes, text_codes: uint8 [N, L/8]; at least one of the two.
            has_image, has_text: bool [N], which rows of the codes count; by default all.
            image_features, text_features: float [N, L], `real_valued_codes`; for indexes that keep features.
            captions: N texts, or None.
            pictures: N paths or addresses of pictures, or None.
            metadata: N mappings from column to value, or a mapping from column to N values. Values are strings, numbers
                or lists of labels.

        Raises:
            ItemError: for a wrong value; the message names the item.
            IndexBusy: if another process is writing.
            StorageError: if the disk is full, or the database failed; nothing is added.
        """
        with self.writing() as writer:
            return writer.add_codes(
                ids,
                image_codes=image_codes,
                text_codes=text_codes,
                has_image=has_image,
                has_text=has_text,
                image_features=image_features,
                text_features=text_features,
                captions=captions,
                pictures=pictures,
                metadata=metadata,
            )

    def add(
        self,
        ids: Any,
        *,
        images: Sequence[Any] | None = None,
        texts: Sequence[Any] | None = None,
        captions: Sequence[str | None] | None = None,
        pictures: Sequence[str | None] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | Mapping[str, Sequence[Any]] | None = None,
    ) -> Added:
        """Hashes items with the model of the index and adds them, all or none.

        Args:
            ids: N strings or integers, no two equal.
            images: N paths, encoded pictures (bytes) or vectors; None for an item without.
            texts: N captions or vectors; None for an item without.
            captions: the texts to show; by default those in `texts`.
            pictures: where the pictures are; by default the paths in `images`.
            metadata: as for `add_codes`.
        """
        from cmimh_tf.search.building import hash_items

        fields = hash_items(self.model(), self.header, images, texts, captions, pictures)
        return self.add_codes(ids, metadata=metadata, **fields)

    @contextmanager
    def writing(self) -> Iterator[BatchWriter]:
        """Changes that take effect together, when the block ends.

        Example:
            >>> index = create_index("index", code_length=32)
            >>> with index.writing() as writer:
            ...     for number in range(3):
            ...         added = writer.add_codes([number], image_codes=np.full((1, 4), number, np.uint8))
            >>> len(index)
            3
        """
        with self.engine.writing() as writer:
            with self.engine.view() as view:
                header = view.header
            batches = BatchWriter(writer.add, header)
            yield batches
            if batches.header != header:
                writer.set_header(batches.header)

    def remove(self, ids: Sequence[str | int] = (), where: str | None = None) -> int:
        """Removes items by id, or those that meet a filter; returns how many.

        Ids that are not in the index are passed over.
        """
        _check_lists(ids=ids)
        if bool(len(ids)) == (where is not None):
            raise ValueError("`remove` must get either `ids` or `where`.")
        names = [check_id(name) for name in ids]
        if where is not None:
            parse_filter(where)
        with self.engine.writing() as writer:
            with self.engine.view() as view:
                if where is None:
                    rows = view.rows_of(names)
                    rows = np.unique(rows[rows >= 0])
                else:
                    rows = view.all_rows(bind(parse_filter(where), view.header.columns))
            writer.remove(rows)
        return len(rows)

    def rehash(self, model: str | Path, data: Sequence[str] = ()) -> int:
        """Replaces all codes by those of another model, in one step; returns the number of items.

        Items are hashed from the data that they came from, or from their stored captions and pictures.

        Args:
            model: the path of the new model.
            data: paths or names of further data to find the items in.
        """
        from cmimh_tf.search.adapters import DataSource
        from cmimh_tf.search.building import rehash_index
        from cmimh_tf.search.models import describe_model

        count = rehash_index(self, describe_model(model), [DataSource(spec) for spec in data])
        self._model_path = self._model = None
        return count

    def info(self) -> dict[str, Any]:
        """Items, bits, model, distinct codes and size, as JSON-ready values."""
        with self.engine.view() as view:
            counts, header = view.counts(), view.header
            distinct = {side: _distinct(view, side) for side in SIDES}
        return {
            "address": self.address,
            **self.engine.describe(),
            "items": counts.items,
            "images": counts.images,
            "texts": counts.texts,
            "code_length": header.code_length,
            "distinct_image_codes": distinct["image"],
            "distinct_text_codes": distinct["text"],
            "bytes_on_disk": self.engine.size(),
            "keeps_features": header.keeps_features,
            "columns": header.columns,
            "model": None if header.model is None else header.to_json()["model"],
            "sources": header.sources,
            "format": header.format,
        }

    def verify(self) -> list[str]:
        """Checks every row against its checksum; returns one sentence per problem."""
        return self.engine.verify()


class BatchWriter:
    """Adds items in batches of any size; see `Index.writing`."""

    def __init__(self, add: Callable[[ItemBatch], int], header: Header):
        self._add = add
        self.header = header
        self.added = self.replaced = 0

    def add_codes(self, ids: Any, **fields: Any) -> Added:
        """As `Index.add_codes`."""
        header = self.header
        batch, columns = make_batch(ids, code_length=header.code_length, columns=header.columns, **fields)
        for side in batch.codes:
            if header.keeps_features != (side in batch.features):
                rule = "must be given, as the index keeps features" if header.keeps_features else "must not be given"
                raise ValueError(f"`{side}_features` {rule}.")
        replaced = 0
        for start in range(0, len(batch), _ITEMS_AT_ONCE):
            replaced += self._add(batch.slice(start, start + _ITEMS_AT_ONCE))
        self.header = replace(header, columns=columns)
        self.added += len(batch)
        self.replaced += replaced
        return Added(len(batch), replaced)

    def add_source(self, source: dict[str, Any]) -> None:
        """Records where items came from, so that they can be hashed again."""
        others = [known for known in self.header.sources if known["data"] != source["data"]]
        self.header = replace(self.header, sources=[*others, source])

    def finish(self) -> None:
        """Marks a new index as complete."""
        self.header = replace(self.header, complete=True)


def open_index(address: str | Path, *, model: str | Path | None = None, **options: Any) -> Index:
    """Opens an index.

    Args:
        address: a folder; a folder of numbered versions, of which the newest is opened;
            "postgresql://user@host/database?table=NAME"; "milvus://host:19530/NAME"; or
            "milvus:///path/file.db?collection=NAME" for Milvus Lite.
        model: the path of the model that hashes queries. By default the one that made the index, at its old place.
        **options: of the engine. For a folder, `search`: "auto", "exact" or "ivf", and `num_probes`.

    Raises:
        IndexNotFound: if there is none.

    Example:
        >>> codes = np.array([[0, 0, 0, 0], [255, 0, 0, 0]], np.uint8)
        >>> with create_index("index", code_length=32) as index:
        ...     added = index.add_codes(["a", "b"], image_codes=codes, metadata={"label": [["dog"], ["cat"]]})
        >>> index = open_index("index")
        >>> hits = index.search(codes=codes[1:], find="images", top=10, where="label = 'dog'")
        >>> hits[0].id, hits[0].distance, hits[0].score, hits[0].metadata
        ('a', 8, 0.5, {'label': ['dog']})
    """
    index = Index(open_engine(str(address), **options), model)
    if not index.header.complete:
        index.close()
        raise IndexNotFound(
            f"{index.address} was not built to the end. Run the build again: python -m cmimh_tf.index build"
        )
    return index


def create_index(
    address: str | Path,
    *,
    code_length: int | None = None,
    model: str | Path | None = None,
    keep_features: bool = False,
    **options: Any,
) -> Index:
    """Makes an empty index.

    Args:
        address: as for `open_index`; nothing may be there yet.
        code_length: the number of bits; needed unless `model` is given.
        model: the path of the model whose codes the index will hold.
        keep_features: also store the real-valued codes, for `rerank="features"`.
        **options: of the engine.

    Example:
        >>> index = create_index("index", code_length=32)
        >>> index.add_codes(["a", "b"], image_codes=np.zeros((2, 4), np.uint8))
        Added(added=2, replaced=0)
    """
    stamp: ModelStamp | None = None
    if model is not None:
        from cmimh_tf.search.models import describe_model

        described = describe_model(model)
        stamp = described.stamp
        code_length = described.code_length if code_length is None else code_length
        if code_length != described.code_length:
            raise ValueError(f"`code_length` must be the model's, {described.code_length}. Received: {code_length}.")
    if code_length is None:
        raise ValueError("`code_length` must be given, or `model`. Received: neither.")
    create_engine(str(address), Header(check_code_length(code_length), stamp, keep_features))
    return Index(open_engine(str(address), **options), model)


def _check_lists(**lists: Any) -> None:
    """Raises TypeError for a string, whose characters would be taken for the items of a list."""
    for name, values in lists.items():
        if isinstance(values, str | bytes):
            raise TypeError(f"`{name}` must be a list. Received: {name}={values[:60]!r}.")


def _items(view: View, rows: np.ndarray) -> list[Item]:
    codes: list[dict[str, bytes]] = [{} for _ in rows]
    for side in SIDES:
        at = np.flatnonzero(view.has_side(side, rows))
        for place, code in zip(at, view.codes(side, rows[at]), strict=True):
            codes[place][side] = code.tobytes()
    return [
        Item(item.id, item.caption, item.picture, item.metadata, of_item)
        for item, of_item in zip(view.items(rows), codes, strict=True)
    ]


def _distinct(view: View, side: str) -> int:
    rows = view.all_rows()
    codes = view.codes(side, rows[view.has_side(side, rows)])
    return len(np.unique(codes.view(np.dtype((np.void, codes.shape[1]))))) if len(codes) else 0
