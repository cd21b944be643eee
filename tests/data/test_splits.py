import argparse
from typing import Any

import numpy as np
import pytest

from cmimh_tf import command_line
from cmimh_tf.data import PairedData, Splits, make_splits
from cmimh_tf.data.splits import PROTOCOLS, split_data


def test_the_rule_on_a_literal_permutation() -> None:
    # numpy.random.default_rng(0).permutation(10)
    splits = make_splits(10, 0, num_queries=3, num_train=4)
    assert splits.query.tolist() == [4, 6, 2]
    assert splits.database.tolist() == [7, 3, 5, 9, 0, 8, 1]
    assert splits.train.tolist() == [7, 3, 5, 9]
    assert {array.dtype for array in (splits.query, splits.database, splits.train)} == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    ("num_items", "sizes"),
    [
        (8, (1, 7, 7)),
        (1903, (237, 1666, 1666)),
        (18020, (2000, 16020, 16020)),
    ],
)
def test_default_sizes(num_items: int, sizes: tuple[int, int, int]) -> None:
    splits = make_splits(num_items, 0)
    assert (len(splits.query), len(splits.database), len(splits.train)) == sizes


def test_the_paper_trains_on_5000_pairs_at_most() -> None:
    assert len(make_splits(18020, 0, protocol="paper").train) == 5000
    assert len(make_splits(1903, 0, protocol="paper").train) == 1666
    assert len(make_splits(18020, 0, protocol="paper", num_train=9000).train) == 9000
    is_query = np.arange(18020) < 100
    assert len(make_splits(18020, 0, protocol="paper", is_query=is_query).train) == 5000
    # An official training set is used whole.
    is_train = np.arange(18020) >= 8020
    assert len(make_splits(18020, 0, protocol="paper", is_query=is_query, is_train=is_train).train) == 10_000


def test_the_flags_offer_the_protocols() -> None:
    parser = argparse.ArgumentParser()
    command_line.add_split_flags(parser)
    for protocol in PROTOCOLS:
        assert parser.parse_args(["--protocol", protocol]).protocol == protocol
    assert parser.parse_args([]).protocol == "all"


def test_the_protocol_of_the_paired_benchmark() -> None:
    permutation = np.random.default_rng(1).permutation(18020)
    splits = make_splits(18020, 1, protocol="paper")
    np.testing.assert_array_equal(splits.query, permutation[:2000])
    np.testing.assert_array_equal(splits.database, permutation[2000:])
    np.testing.assert_array_equal(splits.train, permutation[2000:7000])


def test_seeds_repeat_and_differ() -> None:
    first, again, other = make_splits(100, 0), make_splits(100, 0), make_splits(100, 1)
    np.testing.assert_array_equal(first.query, again.query)
    assert first.query.tolist() != other.query.tolist()


def test_official_queries_are_kept() -> None:
    is_query = np.isin(np.arange(10), [1, 6])
    splits = make_splits(10, 0, is_query=is_query, num_train=3)
    assert splits.query.tolist() == [6, 1]
    assert splits.database.tolist() == [4, 2, 7, 3, 5, 9, 0, 8]
    assert splits.train.tolist() == [4, 2, 7]


def test_official_training_set_is_the_head_of_the_database() -> None:
    is_query, is_train = (np.isin(np.arange(10), rows) for rows in ([1, 6], [0, 3, 9]))
    splits = make_splits(10, 0, is_query=is_query, is_train=is_train)
    assert splits.query.tolist() == [6, 1]
    assert splits.train.tolist() == [3, 9, 0]
    assert splits.database.tolist() == [3, 9, 0, 4, 2, 7, 5, 8]
    assert make_splits(10, 0, is_query=is_query, is_train=is_train, num_train=2).train.tolist() == [3, 9]


def test_data_with_official_splits_are_split_so() -> None:
    is_query, is_train = np.arange(6000) < 10, np.arange(6000) >= 500
    data = PairedData(np.ones((6000, 1)), np.ones((6000, 1)), is_query=is_query, is_train=is_train)
    splits = split_data(data, 0)
    np.testing.assert_array_equal(np.sort(splits.train), np.arange(500, 6000))
    np.testing.assert_array_equal(np.sort(splits.query), np.arange(10))
    assert len(split_data(data, 0, num_train=7).train) == 7


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"num_items": 1},
            ValueError,
            r"`num_items` must be an integer, at least 2\. Received: num_items=1\.",
        ),
        ({"num_items": 7}, ValueError, r"`num_items` must be at least 8 unless `num_queries` is given\."),
        ({"protocol": "half"}, ValueError, r"`protocol` must be one of all, paper\. Received: protocol='half'\."),
        ({"num_items": 10.0}, TypeError, r"`num_items` must be an integer"),
        ({"seed": -1}, ValueError, r"`seed` must be an integer, at least 0\. Received: seed=-1\."),
        ({"seed": None}, TypeError, r"`seed` must be an integer, at least 0\. Received: seed=None\."),
        ({"num_queries": 0}, ValueError, r"`num_queries` must be an integer, in 1\.\.9 \(num_items - 1\)\."),
        ({"num_queries": 10}, ValueError, r"`num_queries` must be .* Received: num_queries=10\."),
        ({"num_queries": True}, TypeError, r"`num_queries` must be an integer"),
        ({"num_train": 10}, ValueError, r"`num_train` must be .* in 1\.\.9 \(the size of the database\)\."),
        ({"num_train": 0}, ValueError, r"`num_train` must be .* Received: num_train=0\."),
        (
            {"is_query": np.ones(10, bool)},
            ValueError,
            r"`is_query` must mark some rows, not all\. .*10 of 10",
        ),
        (
            {"is_query": np.zeros(10, bool)},
            ValueError,
            r"`is_query` must mark some rows, not all\. .*0 of 10",
        ),
        ({"is_query": np.ones(9, bool)}, ValueError, r"`is_query` must have shape \[10\]"),
        ({"is_query": np.arange(10)}, TypeError, r"`is_query` must be booleans\. .*int64"),
        (
            {"is_query": np.arange(10) < 2, "num_queries": 2},
            ValueError,
            r"`num_queries` must be None with `is_query`\. Received: num_queries=2\.",
        ),
        ({"is_train": np.arange(10) < 2}, ValueError, r"`is_train` must come with `is_query`\."),
        (
            {"is_query": np.arange(10) < 2, "is_train": np.arange(10) == 1},
            ValueError,
            r"`is_train` must not mark a query\. Received: row 1 in both\.",
        ),
        (
            {"is_query": np.arange(10) < 2, "is_train": np.arange(10) > 6, "num_train": 4},
            ValueError,
            r"`num_train` must be .* in 1\.\.3 \(the size of the official training set\)\.",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_splits(**({"num_items": 10, "seed": 0} | arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1], [1, 2], [2, 3]), ValueError, r"`query` and `database` must be disjoint\. Received: row 2"),
        (([1, 5], [1, 2], [3]), ValueError, r"`train` must be a subset of `database`\. Received: row 5"),
        (([], [1, 2], [3]), ValueError, r"`train` must be a list of at least one row\."),
        (([1], [1, 2], []), ValueError, r"`query` must be a list of at least one row\."),
        (([1], [1, 2, 1], [3]), ValueError, r"`database` must not repeat a row\. Received: row 1 twice\."),
        (([1], [1, -2], [3]), ValueError, r"`database` must hold row numbers from 0\. Received: -2\."),
        (([1.0], [1], [3]), TypeError, r"`train` must be integers\. Received: train\.dtype=float64\."),
    ],
)
def test_splits_that_break_the_protocol(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Splits(*arguments)
