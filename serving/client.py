"""Hashes with a server, ours or TF Serving, over REST or gRPC: a class and a command.

python -m serving.client image photo.jpg
python -m serving.client text "a dog on a beach" --url grpc://127.0.0.1:8500
python -m serving.client vectors features.npz --out codes.npz
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from serving.transports import Endpoint, ServerError, connect

Answer = TypeVar("Answer")
RETRIED_STATUSES = (429, 503, "RESOURCE_EXHAUSTED", "UNAVAILABLE")
# In base64 it is a third more, which is below the server's limit of 16 MB.
_MAX_BATCH_BYTES = 8 << 20


class HashingClient:
    """Hashes vectors, picture files and captions. Hashing has no side effects, so every request may be repeated.

    Args:
        url: `http://host:8501`, or `grpc://host:8500`; `https` and `grpcs` for TLS.
        model: name of the model on the server.
        version, label: version of the model; at most one of them, by default the newest version.
        timeout: seconds per request.
        retries: number of repetitions if the server is busy (429), unavailable (503) or cannot be reached.
        backoff: seconds before the first repetition, doubled before each further one.
        batch_rows: maximum number of rows per request; a request has fewer if they exceed 8 MB.
        token: bearer token.
        certificate: PEM file of the authority that signed the server's certificate, if it is not a public one.

    Example:
        >>> with HashingClient("http://127.0.0.1:8501") as client:
        ...     codes = client.hash_captions(["a dog on a beach"])  # uint8 [1, code_length / 8]
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8501",
        *,
        model: str = "cmimh",
        version: int | None = None,
        label: str | None = None,
        timeout: float = 10.0,
        retries: int = 3,
        backoff: float = 0.1,
        batch_rows: int = 64,
        token: str | None = None,
        certificate: str | os.PathLike[str] | None = None,
    ):
        for name, value in {"timeout": timeout, "batch_rows": batch_rows}.items():
            if not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value}.")
        if retries < 0:
            raise ValueError(f"`retries` must be at least 0. Received: retries={retries}.")
        self._retries, self._backoff, self._batch_rows = retries, backoff, batch_rows
        self._transport = connect(Endpoint(url, model, version, label, timeout, token, certificate))

    def hash_images(self, vectors: np.ndarray) -> np.ndarray:
        """Image vectors [N, width] -> uint8 [N, code_length / 8]."""
        return self._hash("hash_image_float_bytes", _row_bytes(vectors))

    def hash_texts(self, vectors: np.ndarray) -> np.ndarray:
        """Text vectors [N, width] -> uint8 [N, code_length / 8]."""
        return self._hash("hash_text_float_bytes", _row_bytes(vectors))

    def hash_image_files(self, paths: Sequence[str | os.PathLike[str]]) -> np.ndarray:
        """Encoded pictures (JPEG, PNG, GIF, BMP) -> uint8 [N, code_length / 8]."""
        return self._hash("hash_image_bytes", [Path(path).read_bytes() for path in paths])

    def hash_captions(self, captions: Sequence[str]) -> np.ndarray:
        """Strings -> uint8 [N, code_length / 8]."""
        return self._hash("hash_caption", [caption.encode("utf-8") for caption in captions])

    def predict(self, signature: str, rows: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Codes and the probabilities behind them.

        Args:
            signature: "hash_caption", "hash_image_bytes", "hash_text_float_bytes" or "hash_image_float_bytes".
            rows: N captions in UTF-8, encoded pictures, or vectors as bytes of little-endian float32.

        Returns:
            Codes, uint8 [N, code_length / 8], and P(h = 1 | x), float32 [N, code_length].
        """
        parts = self._in_batches(self._transport.predict_probs, signature, rows)
        codes = _code_array([code for codes, _ in parts for code in codes])
        return codes, np.concatenate([probs for _, probs in parts])

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> HashingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hash(self, signature: str, rows: Sequence[bytes]) -> np.ndarray:
        parts = self._in_batches(self._transport.predict, signature, rows)
        return _code_array([code for codes in parts for code in codes])

    def _in_batches(
        self, predict: Callable[[str, Sequence[bytes]], Answer], signature: str, rows: Sequence[bytes]
    ) -> list[Answer]:
        if not rows:
            raise ValueError("There must be at least one row to hash. Received: none.")
        return [self._with_retries(partial(predict, signature, batch)) for batch in _batches(rows, self._batch_rows)]

    def _with_retries(self, request: Callable[[], Answer]) -> Answer:
        for attempt in range(self._retries + 1):
            try:
                return request()
            except ServerError as error:
                if attempt == self._retries or error.is_too_large or error.status not in RETRIED_STATUSES:
                    raise
            time.sleep(self._backoff * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")


def _code_array(codes: Sequence[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), -1)


def _batches(rows: Sequence[bytes], max_rows: int) -> Iterator[list[bytes]]:
    """The rows of each request, in order. A row that is larger than a request should be is sent alone."""
    batch: list[bytes] = []
    size = 0
    for row in rows:
        if batch and (len(batch) >= max_rows or size + len(row) > _MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += len(row)
    yield batch


def _row_bytes(vectors: np.ndarray) -> list[bytes]:
    vectors = np.asarray(vectors)
    if vectors.ndim != 2:
        raise ValueError(f"`vectors` must have shape [rows, width]. Received: {vectors.shape}.")
    return [row.tobytes() for row in np.ascontiguousarray(vectors, "<f4")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints one line `code<TAB>input` per picture or text, or writes an .npz of codes."""
    from cmimh_tf import command_line

    parser = argparse.ArgumentParser(
        prog="python -m serving.client", description="Hashes with a server.", epilog=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("what", choices=("image", "text", "vectors"), help="kind of the inputs")
    parser.add_argument("inputs", nargs="+", help="picture files, texts, or one .npz with `image` and `text`")
    parser.add_argument("--url", default="http://127.0.0.1:8501", help="http(s):// or grpc(s):// (%(default)s)")
    parser.add_argument("--model", default="cmimh", help="name on the server (%(default)s)")
    parser.add_argument("--version", type=int, help="version of the model (default: the newest)")
    parser.add_argument("--label", help="label of the version, such as stable")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help="seconds per request (%(default)s)")
    parser.add_argument("--retries", type=int, default=3, metavar="N", help="if the server is busy (%(default)s)")
    parser.add_argument("--token", default=os.environ.get("CMIMH_SERVING_TOKEN"), help="bearer token")
    parser.add_argument("--certificate", metavar="FILE", help="PEM of the authority that signed the certificate")
    parser.add_argument("--out", type=command_line.path, metavar="FILE", help="output .npz for vectors")
    flags = vars(parser.parse_args(arguments))
    what, inputs, out = flags.pop("what"), flags.pop("inputs"), flags.pop("out")
    if (what == "vectors") != (out is not None) or (what == "vectors" and len(inputs) != 1):
        parser.error("`vectors` needs one .npz and --out; `image` and `text` print their codes.")
    try:
        with HashingClient(flags.pop("url"), **flags) as client:
            for line in _run(client, what, inputs, out):
                print(line)
    except (ServerError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _run(client: HashingClient, what: str, inputs: Sequence[str], out: Path | None) -> Iterator[str]:
    if what == "vectors":
        from cmimh_tf.files import check_not_input, write_npz

        assert out is not None
        check_not_input(out, inputs[0])
        hashers: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "image": client.hash_images, "text": client.hash_texts,
        }  # fmt: skip
        vectors = _read_vectors(inputs[0])
        codes = {f"{name}_codes": hashers[name](array) for name, array in vectors.items()}
        write_npz(out, **codes)
        yield f"{', '.join(codes)}: {out}"
        return
    codes_of = client.hash_image_files if what == "image" else client.hash_captions
    for item, code in zip(inputs, codes_of(inputs), strict=True):
        yield f"{code.tobytes().hex()}\t{item}"


def _read_vectors(path: str) -> dict[str, np.ndarray]:
    """`image` and `text` of an .npz, as far as it has them."""
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path} must be an .npz file. Received: another kind of file.")
    vectors = {}
    with np.load(path, allow_pickle=False) as archive:
        for name in ("image", "text"):
            if name not in archive:
                continue
            try:
                vectors[name] = archive[name]
            except Exception as error:  # Damaged files raise errors of many kinds.
                found = "Python objects" if "allow_pickle" in str(error) else f"a damaged array ({error})"
                raise ValueError(f"{path}: `{name}` must be an array of numbers. Received: {found}.") from error
            if vectors[name].dtype.kind not in "biuf":
                found = f"dtype={vectors[name].dtype}"
                raise ValueError(f"{path}: `{name}` must be an array of numbers. Received: {found}.")
    if not vectors:
        raise ValueError(f"{path} must hold `image` or `text`. Received: neither.")
    return vectors


if __name__ == "__main__":
    main()
