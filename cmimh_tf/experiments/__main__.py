"""The command that repeats the paper's experiments: `python -m cmimh_tf.experiments NAME --data FILE`."""

import argparse
import shlex
import sys
from pathlib import Path

from cmimh_tf import command_line
from cmimh_tf.config import PRESETS

# Listed here, not taken from the catalogue, so that --help stays fast; a test keeps them equal.
NAMES = {
    "main": "mAP@1000 of all methods, four tasks, 16/32/48 bits",
    "mutual-information-weight": "sensitivity to lambda 1",
    "modality-gap-weight": "sensitivity to lambda 2",
    "critic-inputs": "probs against 1, 5, 10, 20 sampled pairs of codes, with histograms and the cost of a step",
    "independence": "with and without the independence term: total correlation, correlation of bits, mAP",
    "ablation": "eight combinations of the four terms, 32 and 48 bits",
    "curves": "precision among the first k and precision over recall, all methods, 32 bits",
    "map50": "mAP@50, the setting of UDCMH, 16/32/64/128 bits",
    "map-all": "mAP over the whole database, the setting of MGAH and UKD, 16/32/64/128 bits",
    "handcrafted": "handcrafted features, the setting of CRE and FSH, 16/32/64/128 bits",
    "recall-one": "RecallOne@1/5/10 among 1,000 queries, the setting of LDR, 16/32/64/128 bits",
    "training-size": "5,000, 10,000 and 20,000 training pairs, against DJSRH",
}
_EPILOG = (
    "experiments:\n"
    + "\n".join(f"  {name:<27}{text}" for name, text in NAMES.items())
    + """

examples:
  python -m cmimh_tf.experiments main --data features.npz
  python -m cmimh_tf.experiments main --data features.npz --bits 16 32 48 --seeds 3 --jobs 2
  python -m cmimh_tf.experiments ablation --data features.npz --preset mscoco --out runs/experiments/paper
  python -m cmimh_tf.experiments main --data emoji --quick

OUT/NAME gets results.csv, results.json, results.md, report.html and the figures; OUT/cells the result of every cell. A
killed experiment goes on where it was when the same command is given again, cells that failed are tried again, and
experiments with the same --out share cells that are equal. Exit code 1: some cells failed.
"""
)


def main() -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python -m cmimh_tf.experiments",
        description="Repeats a table or figure of the paper: all methods on the same features, splits and measures.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=list(NAMES), metavar="NAME", help="which experiment, see below")
    parser.add_argument("--data", required=True, metavar="FILE", help=command_line.DATA_HELP)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of results (default: runs/experiments/<name of the data>)"
    )
    parser.add_argument("--bits", type=int, nargs="+", metavar="L", help="code lengths (default: the experiment's)")
    parser.add_argument("--seeds", type=int, metavar="N", help="number of seeds, from 0 (default: 3; quick: 1)")
    parser.add_argument("--methods", nargs="+", metavar="M", help="only these methods, where methods are compared")
    parser.add_argument("--queries", type=int, metavar="N", help="size of the query set")
    parser.add_argument("--train-pairs", type=int, metavar="N", help="size of the training set")
    parser.add_argument("--preset", choices=list(PRESETS), default="default", help="configuration of CMIMH")
    parser.add_argument("--epochs", type=int, metavar="N", help="of CMIMH")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change the configuration of CMIMH (repeatable)"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="cells at a time (default: by cores and memory)")
    parser.add_argument("--quick", action="store_true", help="at most 1,000 training pairs, 10 epochs, small networks")
    command_line.run(run_experiment, parser.parse_args(), resumes=True)


def run_experiment(arguments: argparse.Namespace) -> int:
    """Measures what is missing and writes the results.

    Returns:
        0, or 1 if a cell failed.
    """
    from cmimh_tf.experiments.catalogue import EXPERIMENTS
    from cmimh_tf.experiments.data_facts import inspect_data
    from cmimh_tf.experiments.options import Options
    from cmimh_tf.experiments.output import Circumstances, write_output
    from cmimh_tf.experiments.results import Results
    from cmimh_tf.experiments.runner import default_jobs, run_cells, threads_per_job
    from cmimh_tf.experiments.screen import Screen
    from cmimh_tf.experiments.standing import describe_standing
    from cmimh_tf.experiments.store import CellStore
    from cmimh_tf.experiments.worker import Worker

    if arguments.jobs is not None and arguments.jobs < 1:
        raise ValueError(f"`--jobs` must be at least 1. Received: --jobs {arguments.jobs}.")
    # Code length and seed belong to the cells; config_from_flags takes them as single values.
    flags = argparse.Namespace(**{**vars(arguments), "bits": None, "seed": 0})
    data = inspect_data(arguments.data)
    options = Options(
        data,
        command_line.config_from_flags(flags),
        arguments.bits,
        arguments.seeds,
        arguments.methods,
        arguments.queries,
        arguments.train_pairs,
        arguments.quick,
    )
    experiment = EXPERIMENTS[arguments.name](options)
    if not experiment.cells:
        raise ValueError(f"`methods` must name some that {experiment.name} measures. Received: {options.methods}.")
    if not data.has_labels and experiment.needs_labels:
        raise ValueError(
            f"`data` must have labels for {experiment.name}, which measures mAP; recall-one needs none. "
            f"Received: {data.name} without labels."
        )
    out = arguments.out or Path("runs/experiments") / data.title
    store = CellStore(out / "cells", data.fingerprint)
    jobs = arguments.jobs or default_jobs(data.num_bytes)
    threads = threads_per_job(jobs)
    print(f"{experiment.title}: {data.title}, {jobs} at a time, results in {out / experiment.name}")
    failures = run_cells(
        experiment.cells, store, lambda: Worker(data.name, store, threads), jobs, Screen(experiment.names)
    )

    by_cell = {cell: result for cell in experiment.cells if (result := store.load(cell)) is not None}
    results = Results(experiment, by_cell)
    named = {experiment.names[cell]: error for cell, error in failures.items()}
    command = shlex.join(["python", "-m", "cmimh_tf.experiments", *sys.argv[1:]])
    write_output(results, Circumstances(command, data, options.base, jobs, threads, named), out / experiment.name)
    for line in describe_standing(results):
        print(line)
    for cell, error in failures.items():
        print(f"failed: {experiment.names[cell]}: {error}; log: {store.log_path(cell)}", file=sys.stderr)
    print(f"table, figures and report: {out / experiment.name}")
    return 1 if failures else 0


if __name__ == "__main__":
    main()
