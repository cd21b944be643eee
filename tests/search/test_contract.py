"""What every engine must do: the same tests for a folder, PostgreSQL and Milvus, compared with plain NumPy."""

import numpy as np
import pytest

from cmimh_tf.codes import hamming_distance, unpack_codes
from cmimh_tf.search.api import create_index, open_index
from cmimh_tf.search.engines.interface import IndexBusy, IndexNotFound, UnknownItem
from cmimh_tf.search.filters import FilterError
from cmimh_tf.search.items import ItemError
from tests.search.conftest import random_codes, repeated_codes

COUNT = 300
NASTY = ["it's", 'say "hi"', "back\\slash", "100%_sure", "ünï ☃", "{x}", "a' or 1=1 --", "$$", "x"]


def names(count, start=0):
    return [f"item-{number}" for number in range(start, start + count)]


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def nearest(queries, codes, top, chosen=None):
    """Positions and distances by distance and then by position."""
    distances = hamming_distance(queries, codes).astype(np.int64)
    if chosen is not None:
        distances[:, ~chosen] = 10_000
    order = np.argsort(distances, axis=1, kind="stable")[:, :top]
    return order, np.take_along_axis(distances, order, axis=1)


def fill(index):
    """Adds items with duplicate codes and metadata; returns what was added."""
    random = np.random.default_rng(1)
    codes = {side: repeated_codes(random, COUNT) for side in ("image", "text")}
    metadata = [
        {
            "year": 2000 + number % 25,
            "weight": number / 7,
            "name": NASTY[number % len(NASTY)],
            "label": [["dog"], ["cat", "it's"], ["dog", "cat"], []][number % 4],
        }
        for number in range(COUNT)
    ]
    for number in range(0, COUNT, 10):
        metadata[number] = {"label": ["odd"]} if number % 20 else {}
    added = index.add_codes(
        names(COUNT),
        image_codes=codes["image"],
        text_codes=codes["text"],
        captions=[f"caption {number}" if number % 3 else None for number in range(COUNT)],
        pictures=[f"/pictures/{number}.jpg" for number in range(COUNT)],
        metadata=metadata,
    )
    assert (added.added, added.replaced) == (COUNT, 0)
    return codes, metadata


@pytest.fixture(scope="module")
def library(new_address):
    """An index that tests only read, and what is in it."""
    with create_index(new_address(), code_length=32) as index:
        yield index, *fill(index)


@pytest.fixture
def filled(new_index):
    """An index that a test may change, and what is in it."""
    index = new_index()
    return index, *fill(index)


def test_nearest_items_are_exact_and_ties_are_in_the_order_of_insertion(library, random):
    index, codes, _ = library
    queries = np.concatenate([random_codes(random, 6), codes["image"][:6]])
    for find, side in (("images", "image"), ("texts", "text")):
        positions, distances = nearest(queries, codes[side], 40)
        found = index.search_codes(queries, find=find, top=40)
        assert np.array_equal(found.distances, distances)
        assert found.ids.tolist() == [[f"item-{position}" for position in row] for row in positions]
        assert np.allclose(found.scores, 1 - 2 * distances / 32)


def test_more_results_than_items_means_all_items(library):
    index, codes, _ = library
    found = index.search_codes(codes["image"][:2], top=COUNT + 50)
    assert found.ids.shape == (2, COUNT)
    assert sorted(found.ids[0]) == sorted(names(COUNT))


def test_radius_keeps_near_items_only(library):
    index, codes, _ = library
    distances = hamming_distance(codes["image"][:3], codes["image"])
    for top in (None, 5):
        found = index.search_codes(codes["image"][:3], top=top, radius=8)
        for query in range(3):
            expected = np.sort(distances[query][distances[query] <= 8])[:top]
            got = found.distances[query]
            assert got[got >= 0].tolist() == expected.tolist()
            assert (found.ids[query][got < 0] == "").all()
    assert index.search_codes(255 - codes["image"][:1], top=None, radius=0).ids.size == 0


def test_both_sides_give_each_item_once_where_it_is_nearer(library, random):
    index, codes, _ = library
    queries = random_codes(random, 4)
    of_sides = np.stack([hamming_distance(queries, codes[side]) for side in ("image", "text")]).astype(int)
    best = of_sides.min(axis=0)
    found = index.search_codes(queries, find="both", top=30)
    for query in range(4):
        order = np.argsort(best[query], kind="stable")[:30]
        assert found.ids[query].tolist() == [f"item-{position}" for position in order]
        assert found.distances[query].tolist() == best[query][order].tolist()
        assert found.found[query].tolist() == of_sides[:, query, order].argmin(axis=0).tolist()


def test_items_with_one_side_are_found_by_that_side_only(new_index, random):
    index = new_index()
    codes = random_codes(random, 6)
    index.add_codes(["a", "b"], image_codes=codes[:2])
    index.add_codes(["c", "d"], text_codes=codes[2:4])
    has_text = [False, True]
    index.add_codes(["e", "f"], image_codes=codes[4:], text_codes=codes[4:], has_text=has_text)
    images = index.search_codes(codes[:1], find="images", top=10)
    texts = index.search_codes(codes[:1], find="texts", top=10)
    assert sorted(images.ids[0]) == ["a", "b", "e", "f"]
    assert sorted(texts.ids[0]) == ["c", "d", "f"]
    assert sorted(index.search_codes(codes[:1], find="both", top=10).ids[0]) == ["a", "b", "c", "d", "e", "f"]
    hits = index.search(ids=["a"], find="texts")
    assert {hit.id for hit in hits} == {"c", "d", "f"}
    assert {hit.found for hit in hits} == {"text"}
    info = index.info()
    assert (info["items"], info["images"], info["texts"]) == (6, 4, 3)


def test_empty_index_answers_with_nothing(new_index, random):
    index = new_index()
    found = index.search_codes(random_codes(random, 3), top=5)
    assert found.ids.shape == (3, 0)
    assert len(index) == 0
    assert index.verify() == []
    assert index.search(codes=random_codes(random, 1)).per_query == [[]]
    assert index.info()["distinct_image_codes"] == 0


FILTERS = [
    ("year >= 2020", lambda item: item.get("year", -1) >= 2020),
    ("year < 2005 or year = 2024", lambda item: "year" in item and (item["year"] < 2005 or item["year"] == 2024)),
    ("year != 2010", lambda item: "year" in item and item["year"] != 2010),
    ("not (year = 2010)", lambda item: "year" in item and item["year"] != 2010),
    ("year in (2001, 2003.0, 9999)", lambda item: item.get("year") in (2001, 2003)),
    ("year not in (2001, 2003)", lambda item: "year" in item and item["year"] not in (2001, 2003)),
    ("weight > 20.5 and weight <= 30", lambda item: 20.5 < item.get("weight", 0) <= 30),
    ("year is null", lambda item: "year" not in item),
    ("year is not null", lambda item: "year" in item),
    ("label = 'dog'", lambda item: "dog" in item.get("label", [])),
    ("label = 'it''s'", lambda item: "it's" in item.get("label", [])),
    ("label != 'dog'", lambda item: "dog" not in item.get("label", [])),
    ("label in ('cat', 'odd')", lambda item: {"cat", "odd"} & set(item.get("label", []))),
    ("label not in ('cat', 'odd')", lambda item: not {"cat", "odd"} & set(item.get("label", []))),
    ("label is null", lambda item: not item.get("label")),
    ("labels is not null", lambda item: item.get("label")),
    ("label = 'nothing'", lambda item: False),
    ("not (label = 'dog' or year >= 2005)", lambda i: "dog" not in i.get("label", []) and i.get("year", 9999) < 2005),
    ("name < 'b'", lambda item: item.get("name", "z") < "b"),
    ("name >= 'say'", lambda item: item.get("name", "") >= "say"),
    ("name like '%s%'", lambda item: "s" in item.get("name", "")),
    ("name like '_t%'", lambda item: item.get("name", "  ")[1:2] == "t"),
    ("name not like '%s%'", lambda item: "name" in item and "s" not in item["name"]),
    ("name like '%'", lambda item: "name" in item),
    (
        "name = 'x' and (year > 2010 and label = 'dog')",
        lambda i: i.get("name") == "x" and i["year"] > 2010 and "dog" in i["label"],
    ),
    *((f"name = {quoted(value)}", lambda item, value=value: item.get("name") == value) for value in NASTY),
    *((f"name != {quoted(value)}", lambda item, value=value: item.get("name", value) != value) for value in NASTY),
    *((f"name in ('-', {quoted(value)})", lambda item, value=value: item.get("name") == value) for value in NASTY),
]


def test_filters_choose_the_items_that_a_plain_loop_chooses(library, random):
    index, codes, metadata = library
    query = random_codes(random, 1)
    for where, passes in FILTERS:
        chosen = np.array([bool(passes(item)) for item in metadata])
        found = index.search_codes(query, top=COUNT, where=where)
        positions, distances = nearest(query, codes["image"], int(chosen.sum()), chosen)
        assert found.ids[0].tolist() == [f"item-{position}" for position in positions[0]], where
        assert found.distances[0].tolist() == distances[0].tolist(), where


def test_filters_on_id_caption_and_picture(library, random):
    index, _, _ = library
    query = random_codes(random, 1)
    for where, expected in [
        ("id = 'item-7'", ["item-7"]),
        ("id in ('item-7', 'item-9', 'item-999')", ["item-7", "item-9"]),
        ("caption = 'caption 17'", ["item-17"]),
        ("picture like '%/17.jpg'", ["item-17"]),
        ("id like 'item-10_' and caption is null", ["item-102", "item-105", "item-108"]),
    ]:
        found = index.search_codes(query, top=COUNT, where=where)
        assert sorted(found.ids[0]) == sorted(expected), where
    assert index.search_codes(query, top=COUNT, where="id != 'item-7'").ids.size == COUNT - 1
    without = index.search_codes(query, top=COUNT, where="caption is null")
    assert without.ids.size == 100
    assert index.search_codes(query, top=COUNT, where="caption is not null").ids.size == COUNT - 100


def test_wrong_filters_are_rejected(library, random):
    index, codes, _ = library
    for where, message in [
        ("yaer > 3", "Did you mean year?"),
        ("year > ", "at character 8"),
        ("year > 'x'", "numbers"),
        ("label > 'x'", "labels"),
        ("colour = 'red'", "Columns: caption, id, label, name, picture, weight, year"),
    ]:
        with pytest.raises(FilterError, match=None) as caught:
            index.search_codes(codes["image"][:1], where=where)
        assert message in str(caught.value)


def test_hits_have_what_was_stored(library):
    index, codes, metadata = library
    hits = index.search(codes=codes["image"][13:14], find="images", top=COUNT)
    assert len(hits) == COUNT
    hit = next(hit for hit in hits if hit.id == "item-13")
    assert (hit.distance, hit.score, hit.found) == (0, 1.0, "image")
    assert (hit.caption, hit.picture) == ("caption 13", "/pictures/13.jpg")
    assert hit.metadata == metadata[13]
    several = index.search(codes=codes["image"][:3], top=2)
    assert [len(of_query) for of_query in several] == [2, 2, 2]
    assert several.per_query[1][0].id == several[1][0].id
    stored = index.get(["item-3", "nothing", "item-1"])
    assert [item and item.id for item in stored] == ["item-3", None, "item-1"]
    assert stored[0].caption is None


def test_an_item_is_not_a_result_of_its_own_query(library):
    index, codes, _ = library
    for top in (1, 5, COUNT + 1):
        found = index.search(ids=["item-5"], find="images", top=top)
        positions, _ = nearest(codes["image"][5:6], codes["image"], COUNT)
        expected = [f"item-{position}" for position in positions[0] if position != 5][:top]
        assert [hit.id for hit in found] == expected
    index.check_ids(["item-5", "item-6"])
    index.check_ids([])
    with pytest.raises(UnknownItem, match="'nothing', which is not in the index"):
        index.search(id="nothing")


def test_asymmetric_ranking_orders_candidates_by_the_query_s_logits(library, random):
    index, codes, _ = library
    logits = random.normal(size=(3, 32)).astype(np.float32)
    queries = np.packbits(logits >= 0, axis=1, bitorder="little")
    signs = 2.0 * unpack_codes(codes["image"]) - 1
    found = index.search_codes(queries, logits=logits, top=10)
    plain = index.search_codes(queries, logits=logits, top=10, rerank="none")
    for query in range(3):
        scores = signs @ logits[query] / np.abs(logits[query]).sum()
        candidates, _ = nearest(queries[query : query + 1], codes["image"], 100)
        order = sorted(candidates[0], key=lambda position: -round(scores[position], 5))[:10]
        assert np.allclose(found.scores[query], scores[order], atol=1e-5)
        _, distances = nearest(queries[query : query + 1], codes["image"], 10)
        assert plain.distances[query].tolist() == distances[0].tolist()
    assert not np.array_equal(found.ids, plain.ids)


def test_features_are_kept_and_rank(new_index, random):
    index = new_index(keep_features=True)
    features = np.tanh(random.normal(size=(50, 32))).astype(np.float16)
    codes = np.packbits(features >= 0, axis=1, bitorder="little")
    index.add_codes(names(50), image_codes=codes, image_features=features)
    with pytest.raises(ValueError, match="`image_features` must be given"):
        index.add_codes(["x"], image_codes=codes[:1])
    logits = random.normal(size=(2, 32)).astype(np.float32)
    queries = np.packbits(logits >= 0, axis=1, bitorder="little")
    found = index.search_codes(queries, logits=logits, top=5, rerank="features")
    real, stored = np.tanh(logits / 2), features.astype(np.float32)
    cosines = real @ stored.T / np.linalg.norm(real, axis=1)[:, None] / np.linalg.norm(stored, axis=1)
    assert np.allclose(found.scores, -np.sort(-cosines, axis=1)[:, :5], atol=2e-3)
    assert found.ids[:, 0].tolist() == [f"item-{position}" for position in cosines.argmax(axis=1)]
    assert index.verify() == []


def test_features_ranking_needs_features(library):
    index, codes, _ = library
    with pytest.raises(ValueError, match="--keep-features"):
        index.search_codes(codes["image"][:1], rerank="features")


def test_adding_an_id_again_replaces_the_item_and_says_so(filled, random):
    index, codes, _ = filled
    new = random_codes(random, 3)
    added = index.add_codes(["item-4", "new", "item-9"], image_codes=new, metadata=[{"year": 1999}] * 3)
    assert (added.added, added.replaced) == (3, 2)
    assert len(index) == COUNT + 1
    assert index.get(["item-4"])[0].metadata == {"year": 1999}
    assert index.get(["item-4"])[0].caption is None
    assert index.search_codes(new[:1], top=1).ids[0, 0] == "item-4"
    # A replaced item has no text code any more, and comes last among equals.
    assert "item-4" not in index.search_codes(codes["text"][4:5], find="texts", top=COUNT).ids[0]
    index.add_codes(["item-4"], image_codes=codes["image"][7:8])
    equal = index.search_codes(codes["image"][7:8], top=COUNT, radius=0).ids[0].tolist()
    assert equal[-1] == "item-4"
    assert index.verify() == []


def test_removing_by_id_and_by_filter(filled, random):
    index, codes, metadata = filled
    assert index.remove(ids=["item-0", 5, "item-7"]) == 2
    dogs = [number for number, item in enumerate(metadata) if "dog" in item.get("label", []) and number not in (0, 7)]
    assert index.remove(where="label = 'dog'") == len(dogs)
    left = sorted(set(range(COUNT)) - set(dogs) - {0, 7})
    assert len(index) == len(left)
    found = index.search_codes(codes["image"][:1], top=COUNT)
    order = np.argsort(hamming_distance(codes["image"][:1], codes["image"][left])[0], kind="stable")
    assert found.ids[0].tolist() == [f"item-{left[position]}" for position in order]
    assert index.get(["item-7"]) == [None]
    with pytest.raises(ValueError, match="either `ids` or `where`"):
        index.remove()
    assert index.verify() == []


def test_a_second_handle_sees_changes(filled, address, random):
    index, codes, _ = filled
    with open_index(address) as other:
        assert len(other) == COUNT
        assert other.search_codes(codes["image"][:1], where="year >= 2000", top=1).ids.size == 1
        index.add_codes(["new"], image_codes=random_codes(random, 1), metadata=[{"year": 2077, "place": "Rome"}])
        index.remove(ids=["item-3"])
        assert len(other) == COUNT
        assert other.search_codes(codes["image"][:1], where="year = 2077").ids.tolist() == [["new"]]
        assert other.search_codes(codes["image"][:1], where="place = 'Rome'").ids.tolist() == [["new"]]
        assert other.get(["item-3"]) == [None]
        assert other.columns["place"] == "string"


def add_and_fail(index, codes):
    with index.writing() as writer:
        writer.add_codes(["new", "item-1"], image_codes=codes, metadata={"fresh": [1, 2]})
        raise RuntimeError("stop")


def test_a_block_that_fails_changes_nothing(filled, random):
    index, codes, _ = filled
    before = index.search_codes(codes["image"][:2], top=COUNT).ids.tolist()
    if index.engine.describe()["engine"] != "milvus":  # It has no transactions.
        with pytest.raises(RuntimeError, match="stop"):
            add_and_fail(index, random_codes(random, 2))
        assert "fresh" not in index.columns
    with pytest.raises(ItemError, match="'twice' twice"):
        index.add_codes(["twice", "b", "twice"], image_codes=random_codes(random, 3))
    with pytest.raises(ItemError, match="`year` must be a finite number"):
        index.add_codes(["bad"], image_codes=random_codes(random, 1), metadata=[{"year": "soon"}])
    assert index.search_codes(codes["image"][:2], top=COUNT).ids.tolist() == before
    assert len(index) == COUNT
    assert index.verify() == []


def test_an_id_twice_in_several_batches_of_one_change_is_rejected(new_index, random):
    with new_index().writing() as writer:
        writer.add_codes(["a", "b"], image_codes=random_codes(random, 2))
        with pytest.raises(ItemError, match="'b' twice"):
            writer.add_codes(["c", "b"], image_codes=random_codes(random, 2))


def test_a_second_writer_is_turned_away(filled, address, random):
    index, _, _ = filled
    with open_index(address) as other:
        with index.writing() as writer:
            writer.add_codes(["new"], image_codes=random_codes(random, 1))
            with pytest.raises(IndexBusy, match="being written by another process"):
                other.add_codes(["other"], image_codes=random_codes(random, 1))
            with pytest.raises(IndexBusy):
                other.remove(ids=["item-1"])
            # Reading goes on.
            assert other.get(["item-1"])[0].id == "item-1"
        assert len(other) == COUNT + 1
        other.add_codes(["other"], image_codes=random_codes(random, 1))
    assert len(index) == COUNT + 2


def test_ids_may_be_any_text_or_integers(new_index, random):
    index = new_index()
    ids = [*NASTY, "ä" * 400, "a\nb", " spaced ", "/path/to/file.jpg"]
    index.add_codes(ids, image_codes=random_codes(random, len(ids)), captions=[f"about {name}"[:50] for name in ids])
    index.add_codes(np.array([17, 42]), image_codes=random_codes(random, 2))
    assert [item.id for item in index.get([*ids, 17, "42"])] == [*ids, "17", "42"]
    assert sorted(index.search_codes(random_codes(random, 1), top=100).ids[0]) == sorted([*ids, "17", "42"])
    assert index.remove(ids=[*ids[:4], 42]) == 5
    assert len(index) == len(ids) - 3
    assert index.verify() == []


@pytest.mark.parametrize("name", ["", "x" * 1001, "nul\0", "\ud800"])
def test_wrong_ids_are_rejected(new_index, random, name):
    index = new_index()
    with pytest.raises(ItemError, match="1 to 1000 bytes"):
        index.add_codes(["fine", name], image_codes=random_codes(random, 2))
    with pytest.raises(TypeError, match="a string or an integer"):
        index.add_codes(["fine", 1.5], image_codes=random_codes(random, 2))
    assert len(index) == 0


def test_replacing_all_codes_keeps_the_rest(filled, address, random):
    index, _, metadata = filled
    index.remove(ids=["item-2"])
    new = random_codes(random, COUNT, 64)

    def make(view):
        from dataclasses import replace

        from cmimh_tf.search.items import make_batch

        rows = view.all_rows()
        kept = [number for number in range(COUNT) if number != 2]
        assert view.ids(rows) == [f"item-{number}" for number in kept]

        def batches():
            for start in range(0, len(kept), 100):
                part = kept[start : start + 100]
                yield make_batch([f"item-{number}" for number in part], code_length=64, text_codes=new[part])[0]

        return replace(view.header, code_length=64), batches()

    with open_index(address) as other:
        assert len(other) == COUNT - 1
        index.engine.replace_codes(make)
        for handle in (index, other):
            assert handle.code_length == 64
            assert len(handle) == COUNT - 1
            assert handle.search_codes(new[9:10], find="texts", top=1).ids.tolist() == [["item-9"]]
            assert handle.search_codes(new[9:10], find="images").ids.size == 0
            assert handle.get(["item-9"])[0].metadata == metadata[9]
            assert handle.search_codes(new[:1], find="texts", top=COUNT, where="label = 'dog'").ids.size > 0
    index.add_codes(["later"], image_codes=random_codes(random, 1, 64))
    assert index.verify() == []


def test_a_failed_replacement_leaves_the_old_codes(filled):
    index, codes, _ = filled
    before = index.search_codes(codes["image"][:2], top=20).ids.tolist()

    def make(view):
        def batches():
            raise RuntimeError("stop")
            yield

        return view.header, batches()

    with pytest.raises(RuntimeError, match="stop"):
        index.engine.replace_codes(make)
    assert index.search_codes(codes["image"][:2], top=20).ids.tolist() == before
    index.remove(ids=["item-1"])
    assert index.verify() == []


def test_info_counts_items_and_distinct_codes(library):
    index, codes, _ = library
    info = index.info()
    assert (info["items"], info["images"], info["texts"], info["code_length"]) == (COUNT, COUNT, COUNT, 32)
    assert info["distinct_image_codes"] == len(np.unique(codes["image"].view(np.uint32)))
    assert info["distinct_text_codes"] == len(np.unique(codes["text"].view(np.uint32)))
    assert info["columns"] == {"year": "number", "weight": "number", "name": "string", "label": "labels"}
    assert info["bytes_on_disk"] > 1000


def test_opening_what_is_not_there(address, new_index):
    with pytest.raises(IndexNotFound, match=r"cmimh_tf\.index build"):
        open_index(address)
    new_index()
    with pytest.raises(FileExistsError):
        new_index()


def test_wrong_arguments_are_rejected(library, random):
    index, codes, _ = library
    query = codes["image"][:1]
    for options, message in [
        ({"find": "pictures"}, "`find` must be one of images, texts, both"),
        ({"top": 0}, "`top` must be at least 1"),
        ({"radius": -1}, "`radius` must be at least 0"),
        ({"top": None}, "`top` must be given, or `radius`"),
        ({"rerank": "best"}, "`rerank` must be one of"),
        ({"logits": np.zeros((1, 8))}, r"`logits` must have shape \[1, 32\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            index.search_codes(query, **options)
    with pytest.raises(TypeError, match="`top` must be an integer"):
        index.search_codes(query, top=2.5)
    with pytest.raises(ValueError, match="32 bits, 4 bytes"):
        index.search_codes(random_codes(random, 1, 64))
    with pytest.raises(ValueError, match="32 bits, 4 bytes"):
        index.add_codes(["x"], image_codes=random_codes(random, 1, 64))
    with pytest.raises(ItemError, match="neither for id 'x'"):
        index.add_codes(["x"], image_codes=codes["image"][:1], has_image=[False])
    with pytest.raises(ValueError, match="a text, an image, an id or a code"):
        index.search()


def test_one_string_is_no_list(filled):
    index = filled[0]
    index.add_codes(["1", "7"], image_codes=np.zeros((2, 4), np.uint8))
    for call in (index.remove, index.get, index.check_ids, lambda ids: index.search(ids=ids)):
        with pytest.raises(TypeError, match=r"`ids` must be a list\. Received: ids='17'\."):
            call("17")
    assert len(index) == COUNT + 2
    with pytest.raises(TypeError, match=r"`texts` must be a list\. Received: texts='a dog'\."):
        index.search(texts="a dog")
    with pytest.raises(TypeError, match=r"`images` must be a list. Received: images='photo\.jpg'."):
        index.search(images="photo.jpg")
