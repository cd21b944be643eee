"""The command that repeats the paper's experiments: `python -m cmimh_tf.experiments NAME --data FILE`."""

import argparse
import shlex
import sys
from pathlib import Path

from cmimh_tf import command_line
from cmimh_tf.config import PRESETS
from cmimh_tf.experiments import BASE_PRESETS, EXPERIMENTS

_EPILOG = (
    "experiments:\n"
    + "\n".join(f"  {name:<27}{text}" for name, (_, text) in EXPERIMENTS.items())
    + """

examples:
  python -m cmimh_tf.experiments main --data features.npz
  python -m cmimh_tf.experiments main --data features.npz --bits 16 32 48 --seeds 3 --jobs 2
  python -m cmimh_tf.experiments ablation --data features.npz --out runs/experiments/paper
  python -m cmimh_tf.experiments main --data emoji --quick

The results are written to OUT/NAME (results.csv, results.json, results.md, report.html and the plots), and the result
of every cell to OUT/cells. To resume an interrupted experiment, run the same command again; it also tries failed cells
again. Experiments with the same --out share equal cells. The exit code is 1 if cells failed.
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
    parser.add_argument("name", choices=list(EXPERIMENTS), metavar="NAME", help="the experiment, see below")
    parser.add_argument(
        "--data", required=True, type=command_line.not_empty, metavar="FILE", help=command_line.DATA_HELP
    )
    parser.add_argument(
        "--out",
        type=command_line.path,
        metavar="DIR",
        help="folder of results (default: runs/experiments/<name of the data>)",
    )
    parser.add_argument("--bits", type=int, nargs="+", metavar="L", help="code lengths (default: the experiment's)")
    parser.add_argument("--seeds", type=int, metavar="N", help="number of seeds (default: 3, or 1 if --quick)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="the first of them (default: 0)")
    parser.add_argument("--methods", nargs="+", metavar="M", help="compare only these methods")
    parser.add_argument("--queries", type=int, metavar="N", help="size of the query set")
    parser.add_argument("--train-pairs", type=int, metavar="N", help="size of the training set")
    parser.add_argument(
        "--preset",
        choices=list(PRESETS),
        help="configuration of CMIMH (default: default; mscoco for studies of terms, mirflickr25k for paper-regime)",
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="number of epochs of CMIMH")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change the configuration of CMIMH (repeatable)"
    )
    parser.add_argument(
        "--rerank",
        choices=("none", "asymmetric"),
        default="none",
        help="asymmetric: add CMIMH ranked by the logits of the queries to comparisons of methods",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="cells at a time (default: by cores and memory)")
    parser.add_argument("--quick", action="store_true", help="at most 1,000 training pairs, 10 epochs, small networks")
    command_line.run(run_experiment, parser.parse_args(), resumes=True)


def run_experiment(arguments: argparse.Namespace) -> int:
    """Measures the cells without a result and writes the report.

    Returns:
        0, or 1 if a cell failed.
    """
    from cmimh_tf.experiments import compares_methods, make_experiment
    from cmimh_tf.experiments.options import Options, check_choices, inspect_data

    if arguments.jobs is not None and arguments.jobs < 1:
        raise ValueError(f"`--jobs` must be at least 1. Received: --jobs {arguments.jobs}.")
    # Code length and seed belong to the cells; config_from_flags expects single values.
    preset = arguments.preset or BASE_PRESETS.get(arguments.name, "default")
    flags = argparse.Namespace(**{**vars(arguments), "bits": None, "seed": 0, "preset": preset})
    config = command_line.config_from_flags(flags)
    choices = arguments.bits, arguments.seeds, arguments.methods, arguments.queries, arguments.train_pairs
    check_choices(*choices)
    if arguments.methods is not None and not compares_methods(arguments.name):
        raise ValueError(
            f"`--methods` must be used with an experiment that compares methods. Received: {arguments.name}."
        )
    data = inspect_data(arguments.data)
    options = Options(data, config, *choices, arguments.quick, arguments.rerank, arguments.first_seed)
    experiment = make_experiment(arguments.name, options)
    if not experiment.cells:
        raise ValueError(f"`methods` must name some that {experiment.name} measures. Received: {options.methods}.")
    if arguments.rerank != "none" and not any(point.within for point in experiment.points):
        raise ValueError(
            f"`--rerank {arguments.rerank}` must be used with an experiment that compares CMIMH with other methods. "
            f"Received: {experiment.name}."
        )
    if not data.has_labels and experiment.needs_labels:
        raise ValueError(
            f"`data` must have labels for {experiment.name}, which measures mAP; recall-one needs none. "
            f"Received: {data.name} without labels."
        )

    from cmimh_tf.experiments.report import RunFacts, make_report, to_terminal, write_report
    from cmimh_tf.experiments.results import CellStore, Results
    from cmimh_tf.experiments.runner import CellProgress, default_jobs, run_cells, threads_per_job
    from cmimh_tf.experiments.worker import Worker

    out = arguments.out or Path("runs/experiments") / data.title
    store = CellStore(out / "cells", data.fingerprint)
    jobs = arguments.jobs or default_jobs(data.num_bytes)
    threads = threads_per_job(jobs)
    print(f"{experiment.title}: {data.title}, {jobs} at a time, results in {out / experiment.name}")
    while True:
        progress = CellProgress(experiment.names)
        failures = run_cells(experiment.cells, store, lambda: Worker(data.name, store, threads), jobs, progress)
        by_cell = {cell: result for cell in experiment.cells if (result := store.load(cell)) is not None}
        if experiment.next_stage is None:
            break
        experiment = experiment.next_stage(Results(experiment, by_cell))

    named = {experiment.names[cell]: error for cell, error in failures.items()}
    command = shlex.join(["python", "-m", "cmimh_tf.experiments", *sys.argv[1:]])
    report = make_report(
        Results(experiment, by_cell), RunFacts(command, data, options.base, jobs, threads, named)
    )  # fmt: skip
    write_report(report, out / experiment.name)
    print(to_terminal(report))
    for cell, error in failures.items():
        print(f"failed: {experiment.names[cell]}: {error}; log: {store.log_path(cell)}", file=sys.stderr)
    print(f"tables, plots and report: {out / experiment.name}")
    return 1 if failures else 0


if __name__ == "__main__":
    main()
