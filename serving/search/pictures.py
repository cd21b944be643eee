"""Pictures: files inside one folder, thumbnails of them, and checks of pictures that clients send."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from serving.errors import ServingError, invalid_argument

SIZES = (64, 128, 256, 512, 1024)
# Any other format is converted before it is hashed, because TensorFlow decodes only these.
_DECODED_BY_TENSORFLOW = ("JPEG", "PNG", "GIF", "BMP")
# No formats that run programs (EPS) or load plug-ins.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF")
_PROBLEMS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning)
_MAX_FILE_BYTES = 64 << 20
_SPARED_BYTES = 512  # of bookkeeping per thumbnail


@dataclass(frozen=True)
class Thumbnail:
    """An encoded thumbnail and its HTTP entity tag."""

    data: bytes
    content_type: str
    etag: str


class Pictures:
    """Thumbnails of the files in one folder, cached in memory. Methods may run in any thread.

    Args:
        root: the folder; None if no pictures are served.
        max_pixels: maximum width times height of a picture.
        cache_bytes: maximum size of the cache.
    """

    def __init__(self, root: Path | None, max_pixels: int, cache_bytes: int):
        self._root = None if root is None else root.resolve()
        self._max_pixels, self._cache_bytes = max_pixels, cache_bytes
        self._cache: OrderedDict[tuple[Any, ...], Thumbnail] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def is_served(self, stored: str | None) -> bool:
        """Whether a stored path may name a picture in the folder. The file is not looked at."""
        return bool(stored) and self._root is not None and "://" not in str(stored) and "\0" not in str(stored)

    def thumbnail(self, stored: str, size: int) -> Thumbnail:
        """A picture, at most `size` pixels wide and high.

        Args:
            stored: the path that the index holds, absolute or relative to the folder.
            size: one of `SIZES`.

        Raises:
            ServingError: NOT_FOUND if there is no such file in the folder, or if it is not a picture.
        """
        with self._open(stored) as file:
            status = os.fstat(file.fileno())
            key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, size)
            with self._lock:
                if key in self._cache:
                    self._cache.move_to_end(key)
                    return self._cache[key]
            if status.st_size > _MAX_FILE_BYTES:
                raise ServingError("NOT_FOUND", "The picture of this item is too large to be shown.")
            made = self._make(file.read(), size, key)
        self._keep(key, made)
        return made

    def _open(self, stored: str) -> Any:
        """Opens a regular file that is inside the folder once all links are followed."""
        missing = ServingError("NOT_FOUND", "This item has no picture in the folder of pictures.")
        if not self.is_served(stored):
            raise missing
        assert self._root is not None
        try:
            path = (self._root / stored).resolve(strict=True)
            if not path.is_relative_to(self._root):
                raise missing
            # The path contains no links now, unless it changes at this moment: the opened file is checked again.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, RuntimeError, ValueError):
            raise missing from None
        try:
            opened = Path(os.readlink(f"/proc/self/fd/{descriptor}")) if os.path.isdir("/proc/self/fd") else path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not opened.is_relative_to(self._root):
                raise missing
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def _make(self, data: bytes, size: int, key: tuple[Any, ...]) -> Thumbnail:
        try:
            with _opened(data, self._max_pixels) as picture:
                picture.draft("RGB", (size, size))
                has_alpha = "A" in picture.getbands() or "transparency" in picture.info
                shown = ImageOps.exif_transpose(picture.convert("RGBA" if has_alpha else "RGB"))
                shown.thumbnail((size, size))
        except _PROBLEMS as error:
            raise ServingError("NOT_FOUND", f"The file of this item's picture cannot be shown: {error}") from None
        encoded = io.BytesIO()
        shown.save(encoded, "WEBP", quality=80, method=2)
        etag = hashlib.blake2b(repr(key).encode(), digest_size=12).hexdigest()
        return Thumbnail(encoded.getvalue(), "image/webp", f'"{etag}"')

    def _keep(self, key: tuple[Any, ...], made: Thumbnail) -> None:
        cost = len(made.data) + _SPARED_BYTES
        if cost > self._cache_bytes:
            return
        with self._lock:
            if key in self._cache:
                return
            self._cache[key] = made
            self._used += cost
            while self._used > self._cache_bytes:
                _, oldest = self._cache.popitem(last=False)
                self._used -= len(oldest.data) + _SPARED_BYTES

    @property
    def cached_bytes(self) -> int:
        """The size of the cache."""
        return self._used


def check_picture(data: bytes, name: str, max_pixels: int) -> bytes:
    """Checks a picture of a client; converts it to PNG if TensorFlow cannot decode its format.

    Args:
        data: the encoded picture.
        name: its field, for error messages.
        max_pixels: maximum width times height.

    Raises:
        ServingError: INVALID_ARGUMENT.
    """
    try:
        with _opened(data, max_pixels) as picture:
            picture.load()
            if picture.format in _DECODED_BY_TENSORFLOW:
                return data
            encoded = io.BytesIO()
            picture.convert("RGB").save(encoded, "PNG", compress_level=1)
            return encoded.getvalue()
    except _PROBLEMS as error:
        reason = str(error) if isinstance(error, _TooManyPixels) else f"{len(data)} bytes that cannot be decoded"
        formats = "JPEG, PNG, GIF, BMP, WebP, TIFF or AVIF"
        raise invalid_argument(f"`{name}` must be a picture ({formats}). Received: {reason}.") from None


class _TooManyPixels(ValueError):
    pass


def _opened(data: bytes, max_pixels: int) -> Image.Image:
    """Opens a picture without decoding it."""
    picture = Image.open(io.BytesIO(data), formats=_FORMATS)
    width, height = picture.size
    if width * height > max_pixels:
        picture.close()
        raise _TooManyPixels(f"one of {width} x {height} pixels, more than {max_pixels}")
    return picture
