"""The arrays behind an embedded index."""

import numpy as np
import pytest

from cmimh_tf.search.engines.memory import IdTable, Items, Memory, Side, Strings

WORDS = ["a", "ünï ☃", "x" * 300, "item-17", "b"]


def strings(words):
    return Strings.from_joined("\0".join(words).encode())


def items(first, words, with_text=True):
    rows = np.arange(first, first + len(words))
    codes = rows.astype(np.uint8)[:, np.newaxis]
    text = Side(codes, None) if with_text else Side(codes[:0], np.empty(0, np.int64))
    return Items(rows, strings(words), {"image": Side(codes, None), "text": text})


def test_strings_come_back_by_position():
    packed = strings(WORDS)
    assert len(packed) == 5
    assert packed.take(np.array([4, 0, 2, 2, 1])) == ["b", "a", "x" * 300, "x" * 300, "ünï ☃"]
    assert packed.take(np.empty(0, np.int64)) == []
    assert packed.joined() == "\0".join(WORDS).encode()
    kept = packed.keep(np.array([True, False, True, False, True]))
    assert kept.take(np.arange(3)) == ["a", "x" * 300, "b"]
    assert packed.slice(1, 4).take(np.arange(3)) == WORDS[1:4]
    assert len(packed.slice(2, 2)) == 0


def test_hashes_do_not_depend_on_the_strings_beside():
    alone = np.concatenate([strings([word]).hashes() for word in WORDS])
    assert np.array_equal(strings(WORDS).hashes(), alone)
    assert len(np.unique(strings([f"item-{number}" for number in range(100_000)]).hashes())) == 100_000
    assert len(np.unique(strings(["a", "aa", "aaa", "a" * 8, "a" * 9, "a" * 16]).hashes())) == 6


def test_older_snapshots_stay_as_they_are():
    memory = Memory(items(1, ["a", "b"]), change=1)
    first = memory.snapshot
    second = memory.update(None, items(3, ["c", "d", "e"]), change=2)
    third = memory.update(np.array([True, False, True, True, False]), items(9, ["f"], with_text=False), change=3)
    fourth = memory.update(None, items(10, ["g"]), change=4)
    assert first.ids.take(np.arange(2)) == ["a", "b"]
    assert second.rows.tolist() == [1, 2, 3, 4, 5]
    assert second.ids.take(np.arange(5)) == ["a", "b", "c", "d", "e"]
    assert third.rows.tolist() == [1, 3, 4, 9]
    assert third.sides["image"].codes[:, 0].tolist() == [1, 3, 4, 9]
    assert third.sides["text"].codes[:, 0].tolist() == [1, 3, 4]
    assert fourth.sides["text"].owners.tolist() == [0, 1, 2, 4]
    assert fourth.sides["text"].indexes(np.array([4, 3, 0])).tolist() == [3, -1, 0]
    assert fourth.positions(np.array([9, 2, 10, 11])).tolist() == [3, -1, 4, -1]
    assert second.positions(np.array([0, 1, 5, 6])).tolist() == [-1, 0, 4, -1]


def test_id_table_finds_the_living():
    table = IdTable()
    names = [f"item-{number}" for number in range(1000)]
    table.add(strings(names[:600]), np.arange(1, 601))
    for start in range(600, 1000, 7):
        part = names[start : start + 7]
        table.add(strings(part), np.arange(start + 1, start + 1 + len(part)))
    # item-3 was replaced by row 1001.
    table.add(strings(["item-3"]), np.array([1001]))
    found = table.find(["item-3", "nothing", *names[500:700]], lambda rows: rows != 4)
    assert found.tolist() == [1001, -1, *range(501, 701)]
    assert table.find(names[:5], lambda rows: rows != 1001).tolist() == [1, 2, 3, 4, 5]
    assert table.find([], lambda rows: rows > 0).tolist() == []


@pytest.mark.parametrize("equal_hashes", [True, False])
def test_id_table_tells_apart_ids_with_equal_hashes(monkeypatch, equal_hashes):
    if equal_hashes:
        monkeypatch.setattr(Strings, "hashes", lambda self: np.zeros(len(self), np.uint64))
    table = IdTable()
    table.add(strings(["a", "b", "c"]), np.array([1, 2, 3]))
    assert table.find(["c", "a", "x"], lambda rows: np.ones(len(rows), bool)).tolist() == [3, 1, -1]
