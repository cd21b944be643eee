"""Vectors batch by batch, in order."""

import gc

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from cmimh_tf.features import describe_pictures
from cmimh_tf.features.compute import VectorComputer, compute_vectors
from cmimh_tf.features.registry import make_image_features


def test_batches_keep_their_order_and_need_no_full_one():
    computer = VectorComputer(make_image_features("descriptor"))
    pictures = [np.random.default_rng(row).integers(0, 256, (1, 8, 8, 3), np.uint8) for row in range(5)]
    encoded = [tf.io.encode_png(picture[0]).numpy() for picture in pictures]
    batches = list(computer.images(encoded, batch_size=2))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    np.testing.assert_allclose(np.concatenate(batches), describe_pictures(np.concatenate(pictures)), atol=1e-5)


def test_bytes_that_are_no_picture_are_rejected_by_number():
    computer = VectorComputer(make_image_features("descriptor"))
    picture = tf.io.encode_png(np.zeros((2, 2, 3), np.uint8)).numpy()
    with pytest.raises(ValueError, match=r"must be JPEG, PNG, GIF or BMP. Received: .* in picture 3, counted"):
        list(computer.images([picture, picture, picture, b"no picture"], batch_size=2))


def test_pictures_are_read_at_most_two_batches_ahead():
    picture = tf.io.encode_png(np.zeros((2, 2, 3), np.uint8)).numpy()
    read = []

    def pictures():
        for number in range(10):
            read.append(number)
            yield picture

    batches = VectorComputer(make_image_features("descriptor")).images(pictures(), batch_size=2)
    assert [(len(next(batches)), len(read)) for _ in range(3)] == [(2, 6), (2, 8), (2, 10)]


def test_repeated_calls_compile_nothing_and_keep_nothing():
    pictures = [tf.io.encode_png(np.full((4, 4, 3), row, np.uint8)).numpy() for row in range(8)]
    rows = [{"image_bytes": picture} for picture in pictures]

    def leftovers():
        gc.collect()
        return len(context.context().list_function_names()), len(gc.get_objects())

    compute_vectors(rows, "descriptor", "")
    functions, objects = leftovers()
    for _ in range(5):
        compute_vectors(rows, "descriptor", "")
    assert leftovers()[0] == functions
    assert leftovers()[1] < objects + 50
