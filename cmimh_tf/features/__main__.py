"""The command that computes features: `python -m cmimh_tf.features --data pairs.csv --out features`."""

import argparse
from pathlib import Path

from cmimh_tf import command_line
from cmimh_tf.features.registry import DEFAULT_IMAGE_FEATURES, DEFAULT_TEXT_FEATURES

_EPILOG = """\
examples:
  python -m cmimh_tf.features --data pairs.csv --out features
  python -m cmimh_tf.features --data photos/ --out features.npz --image-features alexnet_fc7:alexnet.pth
  python -m cmimh_tf.train --data features --out runs/mine

pictures: descriptor, efficientnet_lite0, alexnet_fc7:FILE, vgg19_fc7:FILE, hub:HANDLE
texts:    tags:FILE, minilm, bert:HANDLE

The folder gets TFRecord shards and pairs.json, which says what they are; an .npz is made of the same shards, which
are in <out>.shards until then. A command that was killed goes on when it is given again: finished shards stay.
"""


def main() -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python -m cmimh_tf.features",
        description="Computes vectors of pictures and captions on Apache Beam, and writes TFRecords or an .npz.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", required=True, metavar="PATH", help="pictures and captions: .csv, .jsonl, a folder")
    parser.add_argument(
        "--out", required=True, type=Path, metavar="PATH", help="a folder for TFRecord shards, or an .npz to write"
    )
    parser.add_argument("--image-features", default=DEFAULT_IMAGE_FEATURES, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--text-features", default=DEFAULT_TEXT_FEATURES, metavar="NAME", help="default: %(default)s")
    parser.add_argument(
        "--pairs-per-shard", type=int, default=512, metavar="N", help="about so many in a shard (default: %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="remove shards of other data or features in --out")
    command_line.run(_run, parser.parse_args(), resumes=True)


def _run(arguments: argparse.Namespace) -> None:
    # Late: TensorFlow takes seconds to import, and `--help` should not.
    from cmimh_tf.data.records import open_records
    from cmimh_tf.features.featurize import featurize

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
