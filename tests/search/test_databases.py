"""What only PostgreSQL and Milvus have: approximate indexes, addresses, and limits of their own."""

import uuid

import numpy as np
import pytest

from cmimh_tf.codes import hamming_distance
from cmimh_tf.search.api import create_index, open_index
from cmimh_tf.search.engines import milvus, milvus_view, postgres
from cmimh_tf.search.engines.interface import IndexBusy, IndexNotFound, StorageError
from cmimh_tf.search.engines.milvus_filters import to_expression
from cmimh_tf.search.filters import FilterError, bind, parse_filter
from tests.search.conftest import random_codes, repeated_codes


def names(count):
    return [f"item-{number}" for number in range(count)]


def nearest_distances(queries, codes, top):
    return np.sort(hamming_distance(queries, codes).astype(np.int64), axis=1)[:, :top]


@pytest.mark.parametrize("kind", ["ivfflat", "hnsw"])
def test_approximate_indexes_fill_every_limit_among_duplicates(postgres_url, random, kind):
    codes = repeated_codes(random, 3000)
    address = f"{postgres_url}&table=approximate_{kind}&search={kind}"
    with create_index(address, code_length=32) as index:
        index.add_codes(names(3000), image_codes=codes, metadata={"number": list(range(3000))})
        assert index.info()["search"] == kind
        queries = np.concatenate([random_codes(random, 10), codes[:20]])
        for top in (1, 10, 1000, 2999):
            found = index.search_codes(queries, top=top)
            assert found.rows.shape == (30, top)
            assert (found.rows >= 0).all()
            exact = nearest_distances(queries, codes, top)
            assert (found.distances <= exact[:, -1:]).mean() > 0.9
        # Filters, radius and `exact` do not use the index.
        few = index.search_codes(queries, top=10, where="number < 20")
        assert np.array_equal(few.distances, nearest_distances(queries, codes[:20], 10))
        assert np.array_equal(
            index.search_codes(queries, top=10, exact=True).distances, nearest_distances(queries, codes, 10)
        )
        assert (index.search_codes(codes[:5], top=3, radius=0).distances[:, 0] == 0).all()


def test_an_index_is_made_when_the_table_is_large(postgres_url, random, monkeypatch):
    monkeypatch.setattr(postgres, "LEAST_FOR_IVFFLAT", 500)
    address = f"{postgres_url}&table=growing"
    codes = random_codes(random, 2500)
    with create_index(address, code_length=32) as index:
        index.add_codes(names(400), image_codes=codes[:400])
        assert index.info()["search"] == "exact"
        index.add_codes(names(600)[400:], image_codes=codes[400:600])
        assert index.info()["search"] == "ivfflat"
        index.add_codes(names(2500)[600:], image_codes=codes[600:])
        with index.engine.view() as view:
            assert postgres.get_setting(view.connection, "growing", "indexed") == {"kind": "ivfflat", "items": 2500}
        assert (index.search_codes(codes[2000:2100], top=1).distances == 0).mean() > 0.97
    with open_index(address, search="exact") as index:
        assert np.array_equal(index.search_codes(codes[:50], top=5).distances, nearest_distances(codes[:50], codes, 5))


def test_addresses_of_postgresql(postgres_url):
    with pytest.raises(ValueError, match="`search` must be one of auto, exact, ivfflat, hnsw"):
        open_index(f"{postgres_url}&search=fast")
    with pytest.raises(ValueError, match="`table` must be a name of 1 to 40 bytes"):
        open_index(f"{postgres_url}&table={'x' * 41}")
    with pytest.raises(IndexNotFound, match="no table missing"):
        open_index(f"{postgres_url}&table=missing")
    with pytest.raises(StorageError) as caught:
        open_index("postgresql://someone:secret@127.0.0.1:1/nowhere?connect_timeout=2")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_table_names_are_quoted(postgres_url, random):
    address = f"{postgres_url}&table=odd%20%22name%22%3B--"
    with create_index(address, code_length=32) as index:
        index.add_codes(["a"], image_codes=random_codes(random, 1))
        assert index.verify() == []
        assert index.info()["items"] == 1


def test_verify_finds_a_changed_row(postgres_url, random):
    with create_index(f"{postgres_url}&table=changed", code_length=32) as index:
        index.add_codes(names(5), image_codes=random_codes(random, 5), metadata={"big": [1e300, 1e5, 3, -2.5, 0]})
        assert index.verify() == []
        with index.engine._locked() as connection:
            connection.execute("UPDATE changed SET caption = 'other' WHERE id = 'item-3'")
        assert index.verify() == ["Item 'item-3' does not match its checksum."]


@pytest.fixture
def collection(milvus_file):
    with create_index(f"milvus://{milvus_file}?collection=special_{uuid.uuid4().hex[:8]}", code_length=32) as index:
        yield index


def test_ties_beyond_the_limit_are_still_ordered_by_insertion(collection, random):
    code = random_codes(random, 1)
    far = random_codes(random, 50)
    collection.add_codes(names(350), image_codes=np.concatenate([far, np.repeat(code, 300, axis=0)]))
    found = collection.search_codes(code, top=10)
    assert found.ids[0].tolist() == [f"item-{number}" for number in range(50, 60)]
    assert (found.distances == 0).all()


def test_limits_of_milvus_are_named(collection, random, monkeypatch):
    collection.add_codes(names(5), image_codes=random_codes(random, 5))
    with pytest.raises(ValueError, match="at most 16,384 with Milvus"):
        collection.search_codes(random_codes(random, 1), top=20_000)
    monkeypatch.setattr(milvus_view, "MOST_RESULTS", 5)
    with pytest.raises(ValueError, match="fewer than 5 items with Milvus"):
        collection.search_codes(random_codes(random, 1), top=None, radius=32)


def test_expressions_hold_no_text_of_a_user_without_quotes():
    columns = {"name": "string", "label": "labels", "year": "number"}
    rows: list[str] = []

    def expression(where):
        return to_expression(bind(parse_filter(where), columns), lambda text: rows.append(text) or [1, 2])

    assert "dog" not in expression("label = 'dog' and name in ('dog', 'x')")
    assert expression("""name > 'a" or row > 0 or "\\'""").endswith('"a\\" or row > 0 or \\"\\\\"')
    assert expression("name not like 'x%'").endswith("and row not in [1, 2]")
    assert expression("year in (1, 2.5)").endswith("in [1.0, 2.5]")
    with pytest.raises(FilterError, match="control characters"):
        expression("name > 'a\nb'")
    with pytest.raises(FilterError, match="backslash"):
        expression("name like 'a\\b'")


def test_a_writer_that_was_killed_holds_the_index_for_a_minute(collection, random):
    held = {"token": "x", "process": "host, process 1", "until": 4e9}
    milvus._put(collection.engine.client, collection.engine._parsed, "writer", held)
    with pytest.raises(IndexBusy, match=r"another process \(host, process 1\)\. Try again when it is done; if it"):
        collection.add_codes(["a"], image_codes=random_codes(random, 1))
    milvus._put(collection.engine.client, collection.engine._parsed, "writer", {**held, "until": 1.0})
    assert collection.add_codes(["a"], image_codes=random_codes(random, 1)).added == 1


@pytest.mark.parametrize(
    ("num_probes", "exact", "expected"),
    [(0, False, {}), (0, True, {}), (64, False, {"nprobe": 64}), (64, True, {"nprobe": 1024})],
    ids=["lite", "lite exact", "server", "server exact"],
)
def test_exact_searches_of_a_milvus_server_look_at_all_lists(collection, monkeypatch, num_probes, exact, expected):
    assert collection.engine.num_probes == 0
    seen, search = [], collection.engine.client.search
    monkeypatch.setattr(
        collection.engine.client,
        "search",
        lambda *args, **named: seen.append(named["search_params"]["params"]) or search(*args, **named),
    )
    monkeypatch.setattr(collection.engine, "num_probes", num_probes)
    collection.search_codes(np.zeros((1, 4), np.uint8), top=1, exact=exact)
    assert seen == [expected]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("milvus://host:19530/pictures", ("http://host:19530", "pictures", "", "milvus://host:19530/pictures")),
        ("milvus://host/pictures?secure=true", ("https://host:19530", "pictures", "", "milvus://host:19530/pictures")),
        ("milvus://me:secret@host/x", ("http://host:19530", "x", "me:secret", "milvus://host:19530/x")),
        ("milvus://host", ("http://host:19530", "cmimh_index", "", "milvus://host:19530")),
        ("milvus:///a/b.db?collection=x", ("/a/b.db", "x", "", "milvus:///a/b.db?collection=x")),
    ],
)
def test_addresses_of_milvus(address, expected):
    parsed = milvus._parse(address)
    assert (parsed.uri, parsed.name, parsed.token, parsed.shown) == expected


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("milvus:///a/b", "milvus:///PATH.db"),
        ("milvus://host/a-b", "letters, digits and _"),
        ("milvus://host/a?table=x", "the parameters collection and secure only"),
        ("milvus:///a/b.db", "must have an index. Received: no collection cmimh_index"),
    ],
)
def test_wrong_addresses_of_milvus(address, message):
    with pytest.raises((ValueError, IndexNotFound), match=message):
        open_index(address)
