"""The commands for bulk work on Apache Spark: `python -m cmimh_tf.spark features|hash|load`."""

import argparse
from contextlib import suppress
from pathlib import Path

from cmimh_tf import command_line
from cmimh_tf.features.featurize import PAIRS_PER_SHARD, check_features
from cmimh_tf.features.registry import DEFAULT_IMAGE_FEATURES, DEFAULT_TEXT_FEATURES
from cmimh_tf.spark.hashing import PAIRS_PER_PART

_EPILOG = """\
examples:
  python -m cmimh_tf.spark features --data pairs.csv --out features --master spark://host:7077
  python -m cmimh_tf.spark hash --model runs/mine --data features --out codes --master spark://host:7077
  python -m cmimh_tf.spark load --codes codes --index postgresql://user@host/database?table=photos
  python -m cmimh_tf.spark features --data pairs.csv --out features --master "local[2]" --conf spark.task.cpus=1

features reads the pictures on the executors and computes vectors, hash computes codes of vectors, and load adds the
codes to an index. Vectors and codes are the same, to the bit, as those of cmimh_tf.features and cmimh_tf.hash.

Every machine must have this project installed at the same path, and must see --data, --model and --out under the same
paths, as on a network file system. Each task loads the networks once per worker process and writes whole Parquet files.
If an executor is lost, Spark repeats its tasks. If the command is killed, run it again: finished files are kept.
"""


def main() -> None:
    """Parses the flags and runs the command."""
    parser = argparse.ArgumentParser(
        prog=command_line.program("cmimh_tf.spark"),
        description="Computes features and codes of many pairs on Apache Spark, and loads codes into an index.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    features = commands.add_parser("features", help="pictures and captions to vectors")
    features.add_argument(
        "--data",
        required=True,
        type=command_line.not_empty,
        metavar="PATH",
        help="pictures and captions: .csv, .jsonl, a folder",
    )
    features.add_argument(
        "--image-features", default=DEFAULT_IMAGE_FEATURES, metavar="NAME", help="default: %(default)s"
    )
    features.add_argument("--text-features", default=DEFAULT_TEXT_FEATURES, metavar="NAME", help="default: %(default)s")
    features.add_argument(
        "--pairs-per-shard",
        type=int,
        default=PAIRS_PER_SHARD,
        metavar="N",
        help="approximate size of a file; cmimh_tf.features with the same number gives the same bits "
        "(default: %(default)s)",
    )
    _add_cluster_flags(features)
    hashing = commands.add_parser("hash", help="vectors to codes")
    hashing.add_argument(
        "--model",
        required=True,
        type=command_line.not_empty,
        metavar="MODEL",
        help="run folder, exported model, or folder of versions",
    )
    hashing.add_argument(
        "--data",
        required=True,
        type=command_line.not_empty,
        metavar="PATH",
        help="what `features` wrote, or another source of vectors",
    )
    hashing.add_argument(
        "--pairs-per-part",
        type=int,
        default=PAIRS_PER_PART,
        metavar="N",
        help="approximate size of a file (default: %(default)s)",
    )
    _add_cluster_flags(hashing)
    load = commands.add_parser("load", help="codes to an index; an item with the same id is replaced")
    load.add_argument("--codes", required=True, type=Path, metavar="DIR", help="what `hash` wrote")
    load.add_argument(
        "--index",
        required=True,
        type=command_line.not_empty,
        metavar="INDEX",
        help="postgresql://user@host/database?table=NAME, milvus://host:19530/NAME, or a folder; made if it is missing",
    )
    arguments = parser.parse_args()
    runs = {"features": run_features, "hash": run_hash, "load": run_load}
    command_line.run(runs[arguments.command], arguments, resumes=True)


def _add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", required=True, type=command_line.path, metavar="DIR", help="the folder of Parquet files to write"
    )
    parser.add_argument("--overwrite", action="store_true", help="remove files of other data or networks from --out")
    parser.add_argument(
        "--master",
        default="local[*]",
        metavar="ADDRESS",
        help="spark://host:7077, yarn, k8s://..., or local[N] for N processes on this machine (default: %(default)s)",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark, such as spark.task.cpus=4 for tasks of four threads; repeatable",
    )


def run_features(arguments: argparse.Namespace) -> None:
    """Checks what can be checked at once, then computes features."""
    from cmimh_tf.spark.cluster import Cluster

    command_line.check_data(arguments.data)
    # A missing package is no error yet: the data may have vectors.
    with suppress(ImportError):
        check_features(arguments.image_features, arguments.text_features)
    cluster = Cluster.checked(arguments.master, arguments.conf)
    from cmimh_tf.spark.features import compute_features

    count = compute_features(
        arguments.data,
        arguments.out,
        cluster,
        image_features=arguments.image_features,
        text_features=arguments.text_features,
        pairs_per_shard=arguments.pairs_per_shard,
        overwrite=arguments.overwrite,
    )
    print(f"{count:,} pairs: {arguments.out}")


def run_hash(arguments: argparse.Namespace) -> None:
    """Checks what can be checked at once, then computes codes."""
    from cmimh_tf.search.models import describe_model
    from cmimh_tf.spark.cluster import Cluster

    described = describe_model(arguments.model)
    command_line.check_data(arguments.data)
    cluster = Cluster.checked(arguments.master, arguments.conf)
    from cmimh_tf.spark.hashing import compute_codes

    count = compute_codes(
        arguments.model,
        arguments.data,
        arguments.out,
        cluster,
        pairs_per_part=arguments.pairs_per_part,
        overwrite=arguments.overwrite,
    )
    print(f"{count:,} pairs, {described.code_length} bits each: {arguments.out}")


def run_load(arguments: argparse.Namespace) -> None:
    """Adds codes to an index."""
    from cmimh_tf.spark.load import load_codes

    added = load_codes(arguments.codes, arguments.index)
    replaced = f", {added.replaced:,} of them replaced items with the same id" if added.replaced else ""
    print(f"{arguments.index}: added {added.added:,} items{replaced}")


if __name__ == "__main__":
    main()
