"""Nearest codes: exact, within a radius, and through an inverted file."""

import numpy as np
import pytest

from cmimh_tf.checksums import CHECKSUM_FILE
from cmimh_tf.codes import hamming_distance
from cmimh_tf.search.engines import nearest
from cmimh_tf.search.engines.nearest import InvertedFile, codes_within, cut_at_radius, merge_nearest, nearest_codes
from tests.search.conftest import random_codes, repeated_codes


@pytest.mark.parametrize("code_length", [8, 16, 32, 64, 200, 512])
@pytest.mark.parametrize("threads", [1, 3])
def test_exact_search_orders_ties_by_position(random, monkeypatch, code_length, threads):
    monkeypatch.setattr(nearest, "_LEAST_WORK_FOR_THREADS", 0)
    monkeypatch.setattr(nearest, "_num_threads", lambda: threads)
    codes, queries = repeated_codes(random, 500, code_length), random_codes(random, 70, code_length)
    distances = hamming_distance(queries, codes).astype(np.int64)
    for top in (1, 37, 500, 600):
        order = np.argsort(distances, axis=1, kind="stable")[:, :top]
        found, found_distances = nearest_codes(queries, codes, top)
        assert np.array_equal(found, order)
        assert np.array_equal(found_distances, np.take_along_axis(distances, order, axis=1))
        assert found_distances.dtype == np.int32


def test_no_codes_and_no_queries(random):
    assert nearest_codes(random_codes(random, 3), random_codes(random, 0), 5)[0].shape == (3, 0)
    assert nearest_codes(random_codes(random, 0), random_codes(random, 4), 2)[0].shape == (0, 2)


def test_codes_that_come_nearer_and_nearer_replace_the_ones_before():
    codes = np.packbits(np.tri(64, dtype=np.uint8)[::-1].repeat(300, axis=0), axis=1, bitorder="little")
    found, distances = nearest_codes(np.zeros((1, 8), np.uint8), codes, 4)
    assert found.tolist() == [[18_900, 18_901, 18_902, 18_903]]
    assert distances.tolist() == [[1, 1, 1, 1]]


def test_radius_finds_all_within(random, monkeypatch):
    monkeypatch.setattr(nearest, "_FIRST_GUESS_IN_RADIUS", 3)
    codes, queries = repeated_codes(random, 300), random_codes(random, 9)
    distances = hamming_distance(queries, codes).astype(np.int64)
    found, found_distances = codes_within(queries, codes, 12)
    for query in range(9):
        expected = sorted((int(distance), place) for place, distance in enumerate(distances[query]) if distance <= 12)
        kept = found[query] >= 0
        assert list(zip(found_distances[query][kept], found[query][kept], strict=True)) == expected
        assert (found_distances[query][~kept] == -1).all()


def test_cut_at_radius_drops_columns_without_results():
    rows, distances = cut_at_radius(np.array([[5, 6, 7], [8, 9, -1]]), np.array([[0, 3, 9], [2, 4, -1]]), 3)
    assert rows.tolist() == [[5, 6], [8, -1]]
    assert distances.tolist() == [[0, 3], [2, -1]]


def test_merge_orders_by_distance_and_row():
    rows, distances = merge_nearest(
        (np.array([[7, 9, -1]]), np.array([[1, 2, -1]])), (np.array([[3, 8]]), np.array([[2, 2]])), 3
    )
    assert rows.tolist() == [[7, 3, 8]]
    assert distances.tolist() == [[1, 2, 2]]


@pytest.fixture(scope="module")
def clustered():
    random = np.random.default_rng(1)
    centres = random.integers(0, 2, (60, 64), dtype=np.uint8)
    bits = centres[random.integers(0, 60, 6000)] ^ (random.random((6000, 64)) < 0.08)
    return np.packbits(bits, axis=1, bitorder="little")


def test_inverted_file_finds_nearly_all_and_can_be_saved(clustered, tmp_path):
    rows = np.arange(len(clustered)) * 3 + 1
    lists = InvertedFile.train(clustered, rows, num_lists=32)
    assert (len(lists), lists.last_row) == (6000, int(rows[-1]))
    lists.index.nprobe = 8
    exact = nearest_codes(clustered[:200], clustered, 10)[1]
    found, distances = lists.search(clustered[:200], 10)
    assert (found[:, 0] == rows[:200]).mean() > 0.99
    assert (distances <= exact[:, -1:]).mean() > 0.97
    lists.save(tmp_path / "lists.faiss")
    loaded = InvertedFile.load(tmp_path / "lists.faiss", lists.last_row)
    loaded.index.nprobe = 8
    assert np.array_equal(loaded.search(clustered[:50], 10)[1], distances[:50])
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKSUM_FILE, "lists.faiss"]


def test_lists_with_too_few_codes_are_marked(clustered):
    import faiss

    lists = InvertedFile.train(clustered[:1000], np.arange(1, 1001), num_lists=64)
    lists.index.nprobe = 1
    threads = faiss.omp_get_max_threads()
    rows, distances = lists.search(clustered[:5], 900)
    assert (rows < 0).any()
    assert np.array_equal(rows < 0, distances < 0)
    assert faiss.omp_get_max_threads() == threads
