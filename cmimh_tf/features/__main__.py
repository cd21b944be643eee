"""The command that computes features: `python -m cmimh_tf.features --data pairs.csv --out features`."""

import argparse
import sys
from contextlib import suppress

from cmimh_tf import command_line
from cmimh_tf.data.sources import check_exists, open_records
from cmimh_tf.features.featurize import PAIRS_PER_SHARD, check_features, featurize
from cmimh_tf.features.registry import DEFAULT_IMAGE_FEATURES, DEFAULT_TEXT_FEATURES
from cmimh_tf.files import check_not_input

_EPILOG = """\
examples:
  python -m cmimh_tf.features --data pairs.csv --out features
  python -m cmimh_tf.features --data photos/ --out features.npz --image-features alexnet_fc7:alexnet.pth
  python -m cmimh_tf.train --data features --out runs/mine

pictures: descriptor, efficientnet_lite0, alexnet_fc7:FILE, vgg19_fc7:FILE, hub:HANDLE
texts:    tags:FILE, minilm, bert:HANDLE

The output folder contains TFRecord shards and pairs.json, which describes them. An .npz is made from the same shards,
which are in <out>.shards until it is complete. If the command is killed, run it again: it keeps all finished shards.
"""


def main() -> None:
    """Parses the flags and runs the command."""
    parser = argparse.ArgumentParser(
        prog="python -m cmimh_tf.features",
        description="Computes vectors of pictures and captions on Apache Beam, and writes TFRecords or an .npz.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        required=True,
        type=command_line.not_empty,
        metavar="PATH",
        help="pictures and captions: .csv, .jsonl, a folder",
    )
    parser.add_argument(
        "--out",
        required=True,
        type=command_line.path,
        metavar="PATH",
        help="a folder for TFRecord shards, or an .npz file",
    )
    parser.add_argument("--image-features", default=DEFAULT_IMAGE_FEATURES, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--text-features", default=DEFAULT_TEXT_FEATURES, metavar="NAME", help="default: %(default)s")
    parser.add_argument(
        "--pairs-per-shard",
        type=int,
        default=PAIRS_PER_SHARD,
        metavar="N",
        help="approximate size of a shard (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what is in --out of other data or features")
    arguments = parser.parse_args()
    # Before `run` imports TensorFlow, which takes seconds.
    try:
        _check(arguments)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    command_line.run(_run, arguments, resumes=True)


def _check(arguments: argparse.Namespace) -> None:
    check_exists(arguments.data)
    check_not_input(arguments.out, arguments.data)
    if arguments.pairs_per_shard < 1:
        raise ValueError(f"`pairs_per_shard` must be at least 1. Received: {arguments.pairs_per_shard}.")
    # A missing package is no error yet: the data may have vectors.
    with suppress(ImportError):
        check_features(arguments.image_features, arguments.text_features)


def _run(arguments: argparse.Namespace) -> None:
    count = featurize(
        open_records(arguments.data),
        arguments.out,
        image_features=arguments.image_features,
        text_features=arguments.text_features,
        pairs_per_shard=arguments.pairs_per_shard,
        overwrite=arguments.overwrite,
    )
    print(f"{count:,} pairs: {arguments.out}")


if __name__ == "__main__":
    main()
