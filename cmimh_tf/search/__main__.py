"""The command that searches: `python -m cmimh_tf.search --index INDEX --text "a dog on a beach"`."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmimh_tf import command_line

if TYPE_CHECKING:
    from cmimh_tf.search.queries import Query
    from cmimh_tf.search.results import Hit

_EPILOG = """\
examples:
  python -m cmimh_tf.search --index index --text "a dog on a beach"
  python -m cmimh_tf.search --index index --image photo.jpg --find images --top 20
  python -m cmimh_tf.search --index index --id 17 42 --where "label = 'dog' and year >= 2020"
  python -m cmimh_tf.search --index index --codes queries.npz --radius 6 --json

By default a text finds pictures, a picture finds texts, and ids and codes find both. A filter compares columns with
=, !=, <, <=, >, >=, in (...), like and is null, joined by and, or, not and parentheses; texts are in single quotes.
"""
_FINDS = ("images", "texts", "both")
_RERANKINGS = ("none", "asymmetric", "features")


def main() -> None:
    """Parses the flags and runs the command."""
    parser = argparse.ArgumentParser(
        prog=command_line.program("cmimh_tf.search"),
        description="Finds pictures and texts by a text, a picture, an item or a code.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--index",
        required=True,
        type=command_line.not_empty,
        metavar="INDEX",
        help="a folder, postgresql://... or milvus://...",
    )
    parser.add_argument(
        "--model", type=command_line.not_empty, metavar="MODEL", help="the model of the index, if it has moved"
    )
    parser.add_argument("--text", nargs="+", action="extend", default=[], metavar="TEXT", help="search with texts")
    parser.add_argument("--image", nargs="+", action="extend", default=[], metavar="FILE", help="search with pictures")
    parser.add_argument("--id", nargs="+", action="extend", default=[], metavar="ID", help="search with items")
    parser.add_argument(
        "--codes", type=Path, metavar="FILE", help="search with packed codes: an .npy, or an .npz with codes"
    )
    parser.add_argument("--find", choices=_FINDS, help="what to find (default: the other kind)")
    parser.add_argument("--top", type=_top, default=10, metavar="N", help="hits per query (default: 10), or `all`")
    parser.add_argument("--radius", type=int, metavar="R", help="only items within this Hamming distance")
    parser.add_argument("--where", metavar="FILTER", help="only items that meet a filter, such as \"label = 'dog'\"")
    parser.add_argument(
        "--rerank", choices=_RERANKINGS, default="asymmetric", help="order of the results (default: asymmetric)"
    )
    parser.add_argument("--exact", action="store_true", help="search all codes, even in a large index")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if not (arguments.text or arguments.image or arguments.id or arguments.codes):
        parser.error("one of --text, --image, --id and --codes is needed")
    command_line.run(run_search, arguments)


def _top(text: str) -> int | None:
    return None if text == "all" else int(text)


def run_search(arguments: argparse.Namespace) -> None:
    """Searches and prints the hits."""
    from cmimh_tf.search.api import open_index
    from cmimh_tf.search.models import check_model
    from cmimh_tf.search.queries import Options

    options = Options(
        arguments.find, arguments.top, arguments.radius, arguments.where, arguments.rerank, arguments.exact
    )
    queries = _queries(arguments)
    index = open_index(arguments.index, model=arguments.model)
    options.condition(index.header)
    if arguments.text or arguments.image:
        # Everything that can be wrong is found before TensorFlow, which takes seconds, is imported.
        check_model(index.header, index.address, arguments.model).check_raw(
            [*(["text"] if arguments.text else []), *(["image"] if arguments.image else [])]
        )
        index.check_ids(arguments.id)
        command_line.start_tensorflow()
    found = index.search_queries(queries, options)
    if arguments.json:
        answers = [
            {"query": _described(query, code), "hits": [_plain(hit) for hit in hits]}
            for query, code, hits in zip(queries, found.codes, found.per_query, strict=True)
        ]
        print(json.dumps(answers, ensure_ascii=False, indent=2))
        return
    width = shutil.get_terminal_size((120, 20)).columns
    for number, (query, hits) in enumerate(zip(queries, found.per_query, strict=True)):
        if len(queries) > 1:
            print(f"{'' if number == 0 else chr(10)}{query.kind} {_shown(query, number)}")
        print("\n".join(_line(rank, hit, width) for rank, hit in enumerate(hits, 1)) or "no items found")


def _queries(arguments: argparse.Namespace) -> list[Query]:
    from cmimh_tf.search.items import check_id
    from cmimh_tf.search.queries import Query

    queries = [Query("text", text) for text in arguments.text]
    for image in arguments.image:
        if not Path(image).is_file():
            raise FileNotFoundError(f"`image` must be a picture file. Received: {image}, which does not exist.")
        queries.append(Query("image", image))
    queries += [Query("id", check_id(name)) for name in arguments.id]
    if arguments.codes is not None:
        queries += [Query("code", code) for code in read_codes(arguments.codes)]
    return queries


def read_codes(file: Path) -> Any:
    """The codes of a file, uint8 [N, L/8]: an .npy, or the only array of codes in an .npz.

    Raises:
        FileNotFoundError, ValueError: if there is no such file, or it holds no codes.
    """
    import numpy as np

    from cmimh_tf.codes import check_codes

    if not file.is_file():
        raise FileNotFoundError(f"`codes` must be an .npy or .npz file. Received: {file}, which does not exist.")
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return check_codes(loaded)
        with loaded:
            names = [name for name in loaded.files if name in ("codes", "image_codes", "text_codes")]
            arrays = [loaded[name] for name in names]
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read as codes: {error}") from error
    if len(arrays) != 1:
        raise ValueError(
            f"{file} must hold one of codes, image_codes and text_codes. Received: {', '.join(names) or 'none'}."
        )
    return check_codes(arrays[0])


def _described(query: Query, code: Any) -> dict[str, Any]:
    value = {} if query.kind == "code" else {query.kind: query.value}
    return {**value, "code": code.tobytes().hex()}


def _shown(query: Query, number: int) -> str:
    return f"{number + 1}" if query.kind == "code" else repr(query.value)


def _plain(hit: Hit) -> dict[str, Any]:
    return {**asdict(hit), "code": hit.code.hex(), "score": round(hit.score, 6)}


def _line(rank: int, hit: Hit, width: int) -> str:
    """Rank, score, distance, id and what is known, in one line of the screen."""
    shown = [hit.caption or "", *([hit.picture] if hit.picture and hit.found == "image" else [])]
    shown += [
        f"{name}: {', '.join(value) if isinstance(value, list) else value}" for name, value in hit.metadata.items()
    ]
    line = f"{rank:4}  {hit.score:+.3f}  {hit.distance:3} bits  {hit.found:<5}  {hit.id:<16}  " + " | ".join(
        part.replace("\n", " ") for part in shown if part
    )
    return line if len(line) <= width else line[: width - 3] + "..."


if __name__ == "__main__":
    main()
