"""Encoded pictures: read, checked to be something that TensorFlow decodes, and opened to be looked at."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cmimh_tf.data.records import DataError

if TYPE_CHECKING:
    from PIL.Image import Image


def read_picture(path: Path, place: str) -> bytes:
    """The bytes of a picture that TensorFlow can decode.

    Raises:
        DataError: if there is no such file, or it is no picture.
    """
    try:
        picture = path.read_bytes()
    except OSError as error:
        rule = "`image` must be a file that can be read"
        raise DataError(f"{place}: {rule}. Received: {path} ({error.strerror}).") from error
    check_picture(picture, f"{place}: {path}")
    return picture


def check_picture(picture: bytes, place: str) -> None:
    """Refuses bytes that are no JPEG, PNG, GIF or BMP, or only the first part of one."""
    import tensorflow as tf

    try:
        tf.io.decode_image(picture, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        begins = f"{len(picture):,} bytes that begin with {picture[:8]!r}" if picture else "an empty file"
        raise DataError(f"{place} must be a JPEG, PNG, GIF or BMP picture. Received: {begins}.") from error


@contextmanager
def opened_picture(picture: bytes, place: str) -> Iterator[Image]:
    """The picture as Pillow opens it; it refuses very large ones that TensorFlow decodes.

    Args:
        picture: encoded.
        place: what its record is called in an error.

    Raises:
        DataError: if it cannot be opened, or not be decoded in the body.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(picture)) as opened:
            yield opened
    except (Image.DecompressionBombError, OSError) as error:
        raise DataError(f"{place}: `image` must be a picture that can be shown. Received: {error}") from error
