"""The command that computes features: `python -m cmimh_tf.features --data pairs.csv --out features.npz`."""

import argparse
from pathlib import Path

from cmimh_tf import command_line
from cmimh_tf.features.registry import DEFAULT_IMAGE_FEATURES, DEFAULT_TEXT_FEATURES

_EPILOG = """\
examples:
  python -m cmimh_tf.features --data pairs.csv --out features.npz
  python -m cmimh_tf.features --data photos/ --out features.npz --image-features alexnet_fc7:alexnet.pth
  python -m cmimh_tf.train --data features.npz --out runs/mine

pictures: descriptor, efficientnet_lite0, alexnet_fc7:FILE, vgg19_fc7:FILE, hub:HANDLE
texts:    tags:FILE, minilm, bert:HANDLE

A command that was killed goes on when it is given again: finished parts are in <out>.parts.
"""


def main() -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python -m cmimh_tf.features",
        description="Computes vectors of pictures and captions, and writes them as an .npz.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", required=True, metavar="PATH", help="pictures and captions: .csv, .jsonl, a folder")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the .npz to write")
    parser.add_argument("--image-features", default=DEFAULT_IMAGE_FEATURES, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--text-features", default=DEFAULT_TEXT_FEATURES, metavar="NAME", help="default: %(default)s")
    command_line.run(_run, parser.parse_args())


def _run(arguments: argparse.Namespace) -> None:
    # Late: TensorFlow takes seconds to import, and `--help` should not.
    from cmimh_tf.data.records import open_records
    from cmimh_tf.features.featurize import featurize

    count = featurize(
        open_records(arguments.data),
        arguments.out,
        image_features=arguments.image_features,
        text_features=arguments.text_features,
    )
    print(f"{count:,} pairs: {arguments.out}")


if __name__ == "__main__":
    main()
