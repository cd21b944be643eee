"""The command that makes and changes indexes: `python -m cmimh_tf.index build --model DIR --data DATA --out INDEX`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmimh_tf import command_line

if TYPE_CHECKING:
    from cmimh_tf.search.models import ModelDescription

_EPILOG = """\
examples:
  python -m cmimh_tf.index build  --model runs/mine --data pairs.npz --out index
  python -m cmimh_tf.index build  --codes codes.npz --out index
  python -m cmimh_tf.index add    --index index --data more.npz
  python -m cmimh_tf.index remove --index index --where "split = 'old'"
  python -m cmimh_tf.index info   --index index --verify
  python -m cmimh_tf.index rehash --index index --model runs/newer

INDEX is a folder, postgresql://user@host/database?table=NAME, milvus://host:19530/NAME, or
milvus:///path/file.db?collection=NAME. MODEL is a run folder, an exported model, or a folder of exported versions.
DATA is what every command takes: pictures and captions, or vectors. Search with: python -m cmimh_tf.search
"""
_CODES_HELP = "an .npz with image_codes and/or text_codes, ids, and further arrays as metadata"


def main() -> None:
    """Parses the flags and runs the command."""
    parser = argparse.ArgumentParser(
        prog=command_line.program("cmimh_tf.index"),
        description="Makes and changes an index of binary codes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="hash data into a new index")
    build.add_argument(
        "--model",
        type=command_line.not_empty,
        metavar="MODEL",
        help="run folder, exported model, or folder of versions",
    )
    build.add_argument(
        "--out", required=True, type=command_line.not_empty, metavar="INDEX", help="where the new index goes"
    )
    build.add_argument("--keep-features", action="store_true", help="also store real-valued codes, to rank by them")
    _add_source_flags(build)
    _add_feature_flags(build)
    add = commands.add_parser("add", help="add items; an item with the same id is replaced")
    add.add_argument("--index", required=True, type=command_line.not_empty, metavar="INDEX", help="the index")
    add.add_argument(
        "--model", type=command_line.not_empty, metavar="MODEL", help="the model of the index, if it has moved"
    )
    _add_source_flags(add)
    remove = commands.add_parser("remove", help="remove items")
    remove.add_argument("--index", required=True, type=command_line.not_empty, metavar="INDEX", help="the index")
    chosen = remove.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--ids", nargs="+", metavar="ID", help="items by id")
    chosen.add_argument("--where", metavar="FILTER", help="items by a filter, such as \"split = 'old'\"")
    info = commands.add_parser("info", help="print what is in an index")
    info.add_argument("--index", required=True, type=command_line.not_empty, metavar="INDEX", help="the index")
    info.add_argument("--verify", action="store_true", help="check every row; exit code 1 if one is damaged")
    info.add_argument("--json", action="store_true", help="print JSON")
    rehash = commands.add_parser("rehash", help="replace all codes by those of another model, in one step")
    rehash.add_argument("--index", required=True, type=command_line.not_empty, metavar="INDEX", help="the index")
    rehash.add_argument("--model", required=True, type=command_line.not_empty, metavar="MODEL", help="the new model")
    rehash.add_argument(
        "--data",
        nargs="+",
        default=[],
        type=command_line.not_empty,
        metavar="DATA",
        help="data to find the items in, if theirs has moved",
    )
    _add_feature_flags(rehash)
    arguments = parser.parse_args()
    if arguments.command in ("build", "add") and (arguments.data is None) == (arguments.codes is None):
        parser.error(f"{arguments.command} needs either --data or --codes")
    if arguments.command == "build" and arguments.data is not None and arguments.model is None:
        parser.error("build needs --model to hash --data")
    runs = {"build": run_build, "add": run_add, "remove": run_remove, "info": run_info, "rehash": run_rehash}
    command_line.run(runs[arguments.command], arguments, resumes=arguments.command == "build")


def _add_source_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=command_line.not_empty, metavar="DATA", help="pictures and captions, or vectors")
    parser.add_argument("--codes", type=Path, metavar="FILE", help=_CODES_HELP)


def _add_feature_flags(parser: argparse.ArgumentParser) -> None:
    for side, what in (("image", "pictures"), ("text", "captions")):
        parser.add_argument(
            f"--{side}-features",
            metavar="NAME",
            help=f"features of {what} for a model of vectors, as for python -m cmimh_tf.features (default: by the "
            "width of the vectors)",
        )


def run_build(arguments: argparse.Namespace) -> None:
    """Makes a new index."""
    from cmimh_tf.search.building import build_from_codes, build_index
    from cmimh_tf.search.engines.addresses import is_folder_address
    from cmimh_tf.search.engines.embedded import check_absent

    described = _described(arguments) if arguments.model else None
    if is_folder_address(arguments.out):
        check_absent(Path(arguments.out))
    if arguments.codes is not None:
        index = build_from_codes(
            arguments.out, arguments.codes, described=described, keep_features=arguments.keep_features
        )
    else:
        assert described is not None
        command_line.check_data(arguments.data)
        command_line.start_tensorflow()
        index = build_index(arguments.out, described, _source(arguments.data), keep_features=arguments.keep_features)
    print(f"{arguments.out}: {len(index):,} items of {index.code_length} bits")
    query = '--text "..."' if described is not None and described.hashes_raw("text") else "--id ID"
    print(f"search it: python -m cmimh_tf.search --index {arguments.out} {query}")


def run_add(arguments: argparse.Namespace) -> None:
    """Adds items to an index."""
    from cmimh_tf.search.api import open_index
    from cmimh_tf.search.building import add_code_file, add_data
    from cmimh_tf.search.models import check_model

    index = open_index(arguments.index, model=arguments.model)
    if arguments.codes is not None:
        added = add_code_file(index, arguments.codes)
    else:
        command_line.check_data(arguments.data)
        check_model(index.header, index.address, arguments.model)
        command_line.start_tensorflow()
        added = add_data(index, _source(arguments.data))
    replaced = f", {added.replaced:,} of them replaced items with the same id" if added.replaced else ""
    print(f"{arguments.index}: added {added.added:,} items{replaced}; {len(index):,} in all")


def run_remove(arguments: argparse.Namespace) -> None:
    """Removes items from an index."""
    from cmimh_tf.search.api import open_index

    index = open_index(arguments.index)
    if arguments.where is not None:
        removed, missing = index.remove(where=arguments.where), []
    else:
        found = index.get(arguments.ids)
        missing = [name for name, item in zip(arguments.ids, found, strict=True) if item is None]
        removed = index.remove(ids=arguments.ids)
    note = f"; not in the index: {', '.join(missing[:10])}{', ...' if len(missing) > 10 else ''}" if missing else ""
    print(f"{arguments.index}: removed {removed:,} items{note}; {len(index):,} left")


def run_info(arguments: argparse.Namespace) -> int:
    """Prints what is in an index, and checks it on request."""
    from cmimh_tf.search.api import open_index
    from cmimh_tf.search.engines.interface import IndexDamaged

    try:
        index = open_index(arguments.index)
    except IndexDamaged as error:
        if not arguments.verify:
            raise
        print(json.dumps({"problems": [str(error)]}, indent=2) if arguments.json else error)
        return 1
    facts = index.info()
    problems = index.verify() if arguments.verify else []
    if arguments.json:
        print(json.dumps({**facts, **({"problems": problems} if arguments.verify else {})}, indent=2))
        return int(bool(problems))
    print(_facts_text(facts))
    if arguments.verify:
        print("\n".join(problems) or "every row matches its checksum")
    return int(bool(problems))


def run_rehash(arguments: argparse.Namespace) -> None:
    """Replaces all codes by those of another model."""
    from cmimh_tf.search.api import open_index
    from cmimh_tf.search.building import rehash_index

    index = open_index(arguments.index)
    described = _described(arguments)
    for data in arguments.data:
        command_line.check_data(data)
    command_line.start_tensorflow()
    count = rehash_index(index, described, [_source(data) for data in arguments.data])
    print(f"{arguments.index}: {count:,} items hashed with {described.stamp.describe()}")


def _described(arguments: argparse.Namespace) -> ModelDescription:
    from cmimh_tf.search.models import describe_model

    return describe_model(arguments.model, arguments.image_features, arguments.text_features)


def _source(data: str) -> Any:
    from cmimh_tf.search.adapters import DataSource

    return DataSource(data)


def _facts_text(facts: dict[str, Any]) -> str:
    model = facts["model"]
    version = "" if not model or model["version"] is None else f", version {model['version']}"
    columns = ", ".join(f"{name} ({kind})" for name, kind in facts["columns"].items())
    rows = {
        "index": f"{facts['address']} ({facts['engine']}, {facts['search']} search)",
        "items": f"{facts['items']:,}; {facts['images']:,} with a picture, {facts['texts']:,} with a text",
        "bits": f"{facts['code_length']}",
        "distinct codes": f"{facts['distinct_image_codes']:,} of pictures, {facts['distinct_text_codes']:,} of texts",
        "size": f"{facts['bytes_on_disk'] / 1e6:,.1f} MB",
        "model": f"{model['path']}{version}, fingerprint {model['fingerprint']}" if model else "not known",
        "features": "kept" if facts["keeps_features"] else "not kept",
        "columns": columns or "none",
        "made of": ", ".join(source["data"] for source in facts["sources"]) or "codes",
    }
    return "\n".join(f"{name + ':':<16}{value}" for name, value in rows.items())


if __name__ == "__main__":
    main()
