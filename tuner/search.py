"""The command that searches for loss weights: `python -m tuner.search --data FILE --out DIR`."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from cmimh_tf import command_line
from tuner.search_space import ALGORITHMS
from tuner.workers import PARENT_VARIABLE, WorkerDied, die_with_parent

_EPILOG = """\
examples:
  python -m tuner.search --data features.npz --preset default --bits 32 --trials 20 --workers 2 --out runs/search
  python -m tuner.search --data features.npz --objective label_free --out runs/label_free
  python -m tuner.search --data features.npz --algorithm grid --weights balance --grid-points 7 --out runs/balance

Then: python -m cmimh_tf.train --data features.npz --set @runs/search/best.json --out runs/tuned
The folder gets trials.csv, best.json, result.json and report.html. A search that was killed goes on when the same
command is given again; a finished one is only told about. The query set is never looked at.
"""


def main() -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python -m tuner.search",
        description="Searches for the weights of the loss by short trainings, judged on held-out training pairs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", required=True, metavar="FILE", help=command_line.DATA_HELP)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the search")
    command_line.add_config_flags(parser)
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="settings to try (default: 20)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that run trials (default: 1)")
    parser.add_argument(
        "--algorithm", choices=ALGORITHMS, default="bayesian", help="how settings are chosen (default: bayesian)"
    )
    parser.add_argument(
        "--objective",
        metavar="NAME",
        help="val_map (default with labels), label_free (default without), or a criterion",
    )
    parser.add_argument(
        "--folds", type=int, default=1, metavar="K", help="folds of the training set (default: 1 holdout)"
    )
    parser.add_argument(
        "--trial-share", type=float, default=0.3, metavar="X", help="share of the epochs a trial trains (default: 0.3)"
    )
    parser.add_argument("--weights", nargs="+", metavar="NAME", help="only these of the four weights, such as balance")
    parser.add_argument(
        "--tune-also", nargs="+", default=[], metavar="NAME", help="input_norm, rates, epochs, or KEY=LOW:HIGH"
    )
    parser.add_argument("--grid-points", type=int, default=5, metavar="N", help="values a weight for --algorithm grid")
    parser.add_argument(
        "--queries", type=int, metavar="N", help="size of the query set, which is left alone (default: as in training)"
    )
    parser.add_argument("--train-pairs", type=int, metavar="N", help="size of the training set (default: at most 5000)")
    parser.add_argument("--overwrite", action="store_true", help="delete what is in --out first")
    arguments = parser.parse_args()
    # Before the imports, which take seconds.
    die_with_parent()
    command_line.run(search, arguments, resumes=True)


def search(arguments: argparse.Namespace) -> int:
    """Runs the search, or one process of it."""
    from tuner.search_folder import SearchFolder
    from tuner.search_result import describe_result
    from tuner.weight_search import WeightSearch

    is_member = "KERASTUNER_ORACLE_IP" in os.environ
    folder = SearchFolder(arguments.out)
    weight_search = WeightSearch.from_flags(arguments, folder)
    if is_member:
        # The command that started this process has claimed and locked the folder; one on another machine has not.
        if PARENT_VARIABLE not in os.environ:
            is_chief = os.environ.get("KERASTUNER_TUNER_ID") == "chief"
            with folder.locked() if is_chief else nullcontext():
                folder.claim(weight_search.describe())
                weight_search.run_as_member()
        else:
            weight_search.run_as_member()
        return 0
    if arguments.workers < 1:
        raise ValueError(f"`workers` must be at least 1. Received: workers={arguments.workers}.")
    with folder.locked():
        if arguments.overwrite:
            folder.clear()
        weight_search.begin(sys.stdout)
        result = folder.finished(weight_search.trials)
        if result is not None:
            print(f"{folder.path} holds this search, finished. --overwrite searches anew.")
            print(describe_result(result, folder), end="")
            return 0
        try:
            weight_search.run(arguments.workers, [sys.executable, "-m", "tuner.search", *sys.argv[1:]])
        except WorkerDied as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        return weight_search.conclude(sys.stdout)


if __name__ == "__main__":
    main()
