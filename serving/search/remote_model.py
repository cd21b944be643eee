"""Hashes queries through a model server: ours, or TF Serving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from serving.client import HashingClient
from serving.errors import ServingError, invalid_argument
from serving.search.settings import SearchSettings
from serving.transports import ServerError

# A probability of 1 in float32 stands for a logit of at least 16.
_LARGEST_LOGIT = 16.0
_REJECTED = (400, 404, "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")


class RemoteModel:
    """Has the methods of `cmimh_tf.search.models.HashingModel` that queries need. Threads may share it.

    The server is asked for the version that made the index, so that a newer model on the server is not used for an
    index of the older one.

    Args:
        header: of the index.
        settings: address of the server and name of the model.
    """

    def __init__(self, header: Any, settings: SearchSettings):
        assert settings.serving is not None
        self.stamp = header.model
        self.code_length = header.code_length
        self._version = None if header.model is None else header.model.version
        self._client = HashingClient(
            settings.serving, model=settings.model_name, version=self._version, timeout=settings.request_timeout
        )

    def hash_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Codes, uint8 [N, L/8], and logits, float32 [N, L], of captions."""
        return self._hash("hash_caption", [text.encode("utf-8") for text in texts])

    def hash_images(self, images: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Codes, uint8 [N, L/8], and logits, float32 [N, L], of encoded pictures."""
        return self._hash("hash_image_bytes", list(images))

    def close(self) -> None:
        """Closes the connections to the server."""
        self._client.close()

    def _hash(self, signature: str, rows: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        try:
            codes, probs = self._client.predict(signature, rows)
        except ServerError as error:
            if error.status in _REJECTED:
                raise invalid_argument(f"The model server rejected the query: {error}") from error
            raise ServingError("UNAVAILABLE", f"The model server cannot hash the query: {error}") from error
        if 8 * codes.shape[1] != self.code_length:
            raise ServingError(
                "UNAVAILABLE",
                f"The model server must serve the model that made the index, of {self.code_length} bits. "
                f"Received: a code of {8 * codes.shape[1]} bits.",
            )
        with np.errstate(divide="ignore"):
            logits = np.log(probs) - np.log1p(-probs)
        return codes, np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT).astype(np.float32)
