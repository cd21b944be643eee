"""Encoded pictures: reading a file, checking that TensorFlow can decode it, and opening it for display."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cmimh_tf.data.pairs import DataError

if TYPE_CHECKING:
    from PIL.Image import Image


def read_picture(path: Path, place: str) -> bytes:
    """Reads the bytes of a picture that TensorFlow can decode.

    Args:
        path: the file.
        place: the location of its record for error messages.

    Raises:
        DataError: if there is no such file, or it is not a picture.
    """
    try:
        picture = path.read_bytes()
    except OSError as error:
        rule = "`image` must be a file that can be read"
        raise DataError(f"{place}: {rule}. Received: {path} ({error.strerror}).") from error
    check_picture(picture, f"{place}: {path}")
    return picture


def check_picture(picture: bytes, place: str) -> None:
    """Checks that `picture` is a complete JPEG, PNG, GIF or BMP.

    Raises:
        DataError: if TensorFlow cannot decode it.
    """
    import tensorflow as tf

    try:
        tf.io.decode_image(picture, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        begins = f"{len(picture):,} bytes that begin with {picture[:8]!r}" if picture else "an empty file"
        raise DataError(f"{place} must be a JPEG, PNG, GIF or BMP picture. Received: {begins}.") from error


@contextmanager
def opened_picture(picture: bytes, place: str) -> Iterator[Image]:
    """Opens an encoded picture with Pillow, which rejects very large pictures that TensorFlow would decode.

    Args:
        picture: the encoded picture.
        place: the location of its record for error messages.

    Raises:
        DataError: if Pillow cannot open it, or cannot decode it in the body of the `with` statement.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(picture)) as opened:
            yield opened
    except (Image.DecompressionBombError, OSError) as error:
        raise DataError(f"{place}: `image` must be a picture that can be displayed. Received: {error}") from error
