"""Encoded pictures: read, and checked to be something that TensorFlow decodes."""

from __future__ import annotations

from pathlib import Path

from cmimh_tf.data.records import DataError


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
