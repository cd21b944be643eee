"""Takes paired data to a blessed model for TF Serving, on this machine: `python pipeline/run_local.py`."""

import argparse
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # The script's own folder comes first on the path, from where `pipeline` cannot be imported.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cmimh_tf import command_line
from pipeline.sources.open_source import DATASETS

_EPILOG = """\
examples:
  python pipeline/run_local.py
  python pipeline/run_local.py --data features.npz --bits 64
  python pipeline/run_local.py --data pairs.csv --root runs/mine
  python pipeline/run_local.py --data features.npz --tune 20
  python pipeline/run_local.py --set loss.mutual_information_weight=4 --no-cache Trainer

The root gets serving_model/cmimh/1, 2, ..., artifacts with the report, the curated schema, and logs. A run that was
killed goes on when the same command is given again; what has not changed is taken from earlier runs.
"""


def main() -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python pipeline/run_local.py",
        description="Reads pairs, checks them, fits the preprocessing, trains, measures, checks the export and pushes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--dataset", choices=DATASETS, default="emoji", help="a data set by name (default: emoji)")
    data.add_argument(
        "--data",
        metavar="PATH",
        help="your own: an .npz, a table of pictures and captions (.csv, .jsonl, .parquet), a folder, .tar shards, "
        "TFRecords, or tfds:NAME",
    )
    command_line.add_config_flags(parser)
    parser.add_argument("--root", type=Path, metavar="DIR", help="folder of all runs (default: runs/pipeline/<data>)")
    parser.add_argument(
        "--queries", type=int, metavar="N", help="size of the query set (default: an eighth, at most 2000)"
    )
    parser.add_argument("--train-pairs", type=int, metavar="N", help="size of the training set (default: at most 5000)")
    parser.add_argument(
        "--pca", type=int, default=1024, metavar="N", help="project wider inputs to N dimensions; 0: never"
    )
    parser.add_argument(
        "--image-features",
        metavar="NAME",
        help="of pictures: descriptor, efficientnet_lite0, alexnet_fc7:FILE, vgg19_fc7:FILE, hub:HANDLE "
        "(default: efficientnet_lite0; descriptor for emoji)",
    )
    parser.add_argument(
        "--text-features",
        metavar="NAME",
        help="of captions: bag_of_words, tags:FILE, minilm, bert:HANDLE (default: minilm; bag_of_words for emoji)",
    )
    parser.add_argument("--vocabulary", type=int, default=2047, metavar="N", help="most words of captions to know")
    parser.add_argument("--schema", type=Path, metavar="FILE", help="curated schema (default: that of the first run)")
    parser.add_argument("--from", dest="first", metavar="COMPONENT", help="run it and all after it, cached or not")
    parser.add_argument(
        "--no-cache", action="append", default=[], metavar="COMPONENT", help="run it in any case (repeatable)"
    )
    parser.add_argument(
        "--least-score", type=float, default=0.0, metavar="X", help="bless no model that scores below, in %%"
    )
    parser.add_argument(
        "--most-drop", type=float, default=0.5, metavar="X", help="may be this much below the blessed, in %%"
    )
    parser.add_argument(
        "--beam", action="append", default=[], metavar="KEY=VALUE", help="argument for Beam (repeatable)"
    )
    parser.add_argument("--tune", type=int, metavar="N", help="search for the loss weights first, in N trials")
    parser.add_argument("--docker-check", action="store_true", help="also check the model in TF Serving's container")
    parser.add_argument("--verbose", action="store_true", help="show what TFX and TensorFlow say")
    arguments = parser.parse_args()
    if arguments.verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0")
    command_line.run(_run, arguments, resumes=True)


def _run(arguments: argparse.Namespace) -> int:
    # Late: TFX takes seconds to import, and `--help` should not.
    from pipeline.local_run import run

    return run(arguments)


if __name__ == "__main__":
    main()
