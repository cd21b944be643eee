"""Settings and flags of the search service."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf import command_line
from serving.web_server import WebSettings, add_web_flags, web_flags

_EPILOG = """\
example:
  python -m serving.search --index INDEX --picture-root pictures
  curl -d '{"text": "a dog on a beach", "find": "images"}' http://127.0.0.1:8600/v1/search
"""


@dataclass(frozen=True, kw_only=True)
class SearchSettings(WebSettings):
    """Settings of the search service.

    Attributes:
        index: folder of an index, folder with one numbered folder per version, or the address of a database.
        model_base: folder with the exported model, one numbered folder per version; None for the model that the index
            names.
        serving: address of a model server that hashes queries, such as grpc://127.0.0.1:8500, or None.
        model_name: name of the model on that server.
        port: HTTP port; 0 chooses a free one.
        picture_root: folder of the pictures. Without it, no pictures are served.
        image_url_hosts: hosts from which `image_url` may fetch pictures. Without any, `image_url` is rejected.
        max_queries: maximum number of queries per request.
        max_top: maximum of `top`.
        max_items: maximum number of items per request that adds items.
        max_pixels: maximum width times height of a picture.
        max_waiting: maximum number of requests that wait for a search thread; further ones are rejected (429).
        num_threads: number of requests that search at the same time; 0 means one per processor.
        thumbnail_bytes: size of the cache of thumbnails.
        poll_seconds: time between two looks for a new version of the index.
    """

    index: str
    model_base: Path | None = None
    serving: str | None = None
    model_name: str = "cmimh"
    port: int = 8600
    picture_root: Path | None = None
    image_url_hosts: tuple[str, ...] = ()
    max_queries: int = 64
    max_top: int = 1000
    max_items: int = 1000
    max_pixels: int = 40_000_000
    max_waiting: int = 256
    num_threads: int = 0
    thumbnail_bytes: int = 64 << 20
    poll_seconds: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model_base is not None and self.serving is not None:
            raise ValueError(
                "`model_base` and `serving` must not be given together. "
                f"Received: model_base={self.model_base}, serving={self.serving}."
            )
        if self.serving is not None and not self.serving.startswith(("grpc://", "grpcs://", "http://", "https://")):
            raise ValueError(f"`serving` must be an address such as grpc://127.0.0.1:8500. Received: {self.serving}.")
        self.check_at_least(1, "max_queries", "max_top", "max_items", "max_pixels", "max_waiting")
        self.check_at_least(0, "num_threads", "thumbnail_bytes", "port")
        if self.port > 65535:
            raise ValueError(f"`port` must be at most 65535. Received: port={self.port}.")
        if not self.poll_seconds > 0:
            raise ValueError(f"`poll_seconds` must be positive. Received: poll_seconds={self.poll_seconds}.")


def parse_flags(arguments: Sequence[str] | None = None) -> SearchSettings:
    """The settings of a command line. A mistake ends the program with one sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.search",
        description="Searches an index over HTTP, with a page for people at / and a JSON interface at /v1/search.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, default = parser.add_argument, SearchSettings
    add(
        "--index",
        required=True,
        type=command_line.not_empty,
        metavar="INDEX",
        help="an index, a folder of numbered versions, or postgresql://…",
    )
    models = parser.add_mutually_exclusive_group()
    models.add_argument(
        "--model-base", type=command_line.path, metavar="DIR", help="exported model (default: the index's own)"
    )
    models.add_argument("--serving", metavar="URL", help="model server that hashes queries, such as grpc://host:8500")
    add("--model-name", default=default.model_name, metavar="NAME", help="name on the model server (%(default)s)")
    add("--port", type=int, default=default.port, metavar="PORT", help="0 chooses a free port (%(default)s)")
    add("--picture-root", type=Path, metavar="DIR", help="folder of the pictures; without it none are served")
    add("--image-url-host", action="append", default=[], dest="image_url_hosts", metavar="HOST",
        help="a host from which `image_url` may fetch pictures; may be repeated (default: none)")  # fmt: skip
    add("--poll-seconds", type=float, default=default.poll_seconds, metavar="S",
        help="seconds between two looks for a new version of the index (%(default)s)")  # fmt: skip
    add = parser.add_argument_group("limits").add_argument
    add("--max-queries", type=int, default=default.max_queries, metavar="N", help="queries per request (%(default)s)")
    add("--max-top", type=int, default=default.max_top, metavar="N", help="results per query (%(default)s)")
    add("--max-items", type=int, default=default.max_items, metavar="N", help="items added per request (%(default)s)")
    add("--max-pixels", type=int, default=default.max_pixels, metavar="N", help="pixels per picture (%(default)s)")
    add("--max-waiting", type=int, default=default.max_waiting, metavar="N",
        help="waiting requests; further ones are rejected (%(default)s)")  # fmt: skip
    add("--num-threads", type=int, default=default.num_threads, metavar="N",
        help="requests that search at the same time; 0 means one per processor (%(default)s)")  # fmt: skip
    add("--thumbnail-bytes", type=int, default=default.thumbnail_bytes, metavar="N",
        help="size of the cache of thumbnails (%(default)s)")  # fmt: skip
    add_web_flags(parser)
    flags = vars(parser.parse_args(arguments))
    try:
        return _settings(flags)
    except (ValueError, OSError) as error:
        parser.error(str(error))


def _settings(flags: dict[str, Any]) -> SearchSettings:
    flags = web_flags(flags)
    settings = SearchSettings(**{**flags, "image_url_hosts": tuple(flags["image_url_hosts"])})
    folders = {"index": settings.index, "model_base": settings.model_base, "picture_root": settings.picture_root}
    for name, folder in folders.items():
        if folder is None or "://" in str(folder):
            continue
        if not Path(folder).is_dir():
            raise ValueError(f"`{name}` must be an existing folder. Received: {folder}.")
    return settings
