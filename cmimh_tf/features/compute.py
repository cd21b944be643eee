"""Vectors of many pictures and texts, batch by batch, while the next pictures are being decoded."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.features.registry import make_image_features, make_text_features

if TYPE_CHECKING:
    from cmimh_tf.features.image_features import ImageFeatures

IMAGE_BATCH = 32
TEXT_BATCH = 64
_BATCHES_AHEAD = 2


class VectorComputer:
    """Compiled features of pictures and texts.

    Everything is compiled once, in the constructor, and pictures are decoded by a pool of threads. A `tf.data` pipeline
    per call would trace its functions again each time, and the process would grow by 2 MB per call.

    Args:
        image_features: from `make_image_features`, or None.
        text_features: from `make_text_features`, or None.
    """

    def __init__(self, image_features: ImageFeatures | None = None, text_features: Any = None):
        import tensorflow as tf

        def compiled(function: Any, shape: list[int | None], dtype: tf.DType) -> Any:
            signature = [tf.TensorSpec(shape, dtype)]
            return tf.function(function, input_signature=signature, autograph=False).get_concrete_function()

        self.image_features = image_features
        self.text_features = text_features
        # With unknown batch sizes, so that a smaller last batch is not traced again.
        if image_features is not None:
            size = image_features.picture_size
            self._prepare = compiled(image_features.prepare, [], tf.string)
            self._image_vectors = compiled(image_features.vectors, [None, size, size, 3], tf.float32)
            # As many as TensorFlow may use: on a cluster, other tasks use the other processors.
            threads = tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count()
            self._decoders = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        if text_features is not None:
            self._text_vectors = compiled(text_features, [None], tf.string)

    def images(self, pictures: Iterable[bytes], batch_size: int = IMAGE_BATCH) -> Iterator[np.ndarray]:
        """Yields float32 [batch, dim] for each batch of encoded pictures, in order.

        Pictures are decoded by several threads, at most two batches ahead of the network.

        Raises:
            ValueError: if a picture cannot be decoded.
        """
        remaining = iter(pictures)
        decoding: deque[list[Future]] = deque()
        done = 0
        try:
            while True:
                while len(decoding) <= _BATCHES_AHEAD and (batch := list(itertools.islice(remaining, batch_size))):
                    decoding.append([self._decoders.submit(self._decode, picture) for picture in batch])
                if not decoding:
                    return
                prepared = [_decoded(future, done + row) for row, future in enumerate(decoding.popleft())]
                done += len(prepared)
                yield self._compute(prepared)
        finally:
            for future in itertools.chain(*decoding):
                future.cancel()

    def texts(self, texts: Iterable[str], batch_size: int = TEXT_BATCH) -> Iterator[np.ndarray]:
        """Yields float32 [batch, dim] for each batch of texts, in order."""
        import tensorflow as tf

        remaining = iter(texts)
        while batch := list(itertools.islice(remaining, batch_size)):
            yield self._text_vectors(tf.constant(batch)).numpy()

    def _decode(self, picture: bytes) -> Any:
        import tensorflow as tf

        return self._prepare(tf.constant(picture))

    def _compute(self, prepared: list[Any]) -> np.ndarray:
        import tensorflow as tf

        return self._image_vectors(tf.stack(prepared)).numpy()


def _decoded(future: Future, number: int) -> Any:
    import tensorflow as tf

    try:
        return future.result()
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            f"`pictures` must be JPEG, PNG, GIF or BMP. Received: another format in picture {number}, counted from 0."
        ) from error


def compute_vectors(
    rows: Sequence[Mapping[str, Any]], image_features: str, text_features: str
) -> dict[str, np.ndarray]:
    """`image` from the `image_bytes` of all rows and `text` from their `caption`, float32 [rows, dim].

    The networks are loaded once per process.

    Args:
        rows: features of tf.Examples.
        image_features, text_features: names from `cmimh_tf.features.registry`; "" for none.

    Raises:
        ValueError: if a picture cannot be decoded.
    """
    computer = _computer(image_features, text_features)
    vectors = {}
    if image_features:
        vectors["image"] = np.concatenate(list(computer.images([row["image_bytes"] for row in rows])))
    if text_features:
        vectors["text"] = np.concatenate(list(computer.texts([row["caption"] for row in rows])))
    return vectors


@functools.lru_cache(maxsize=1)
def _computer(image_features: str, text_features: str) -> VectorComputer:
    # TensorFlow's functions print errors if they are deleted after its modules.
    atexit.register(_computer.cache_clear)
    return VectorComputer(
        make_image_features(image_features) if image_features else None,
        make_text_features(text_features) if text_features else None,
    )
