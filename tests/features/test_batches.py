"""Vectors batch by batch, in order."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.features import describe_pictures
from cmimh_tf.features.batches import VectorComputer
from cmimh_tf.features.registry import make_image_features


def test_batches_keep_their_order_and_need_no_full_one():
    computer = VectorComputer(make_image_features("descriptor"))
    pictures = [np.full((1, 8, 8, 3), 10 * row, np.uint8) for row in range(5)]
    encoded = [tf.io.encode_png(picture[0]).numpy() for picture in pictures]
    batches = list(computer.images(encoded, batch_size=2))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    np.testing.assert_allclose(np.concatenate(batches), describe_pictures(np.concatenate(pictures)), atol=1e-5)


def test_bytes_that_are_no_picture_are_refused():
    computer = VectorComputer(make_image_features("descriptor"))
    with pytest.raises(ValueError, match="`pictures` must be JPEG, PNG, GIF or BMP"):
        list(computer.images([b"no picture"]))
