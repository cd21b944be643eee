"""The search for loss weights: `python -m tuner.search --data FILE --out DIR`, and `WeightSearch`, which it runs."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from cmimh_tf import command_line
from tuner.criteria import OBJECTIVES, resolve_objective
from tuner.results import SearchFolder, describe_result, summarise, write_results
from tuner.search_space import ALGORITHMS, SearchSpace, make_space
from tuner.trials import RUNNING, TrialRecord, TrialTable, read_trials, write_csv
from tuner.workers import PARENT_VARIABLE, WorkerDied, die_with_parent, run_chief_and_workers

if TYPE_CHECKING:
    from cmimh_tf.data.pairs import PairedData

_EPILOG = """\
examples:
  python -m tuner.search --data features.npz --preset default --bits 32 --trials 20 --workers 2 --out runs/search
  python -m tuner.search --data features.npz --objective label_free --out runs/label_free
  python -m tuner.search --data features.npz --algorithm grid --weights balance --grid-points 7 --out runs/balance

Then train with the best weights:
  python -m cmimh_tf.train --data features.npz --set @runs/search/best.json --out runs/tuned

The output folder holds trials.csv, best.json, result.json and report.html. To resume an interrupted search, repeat the
command. The search never uses the query set.
"""


def main() -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python -m tuner.search",
        description="Searches for the weights of the loss by short trainings, evaluated on held-out training pairs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", required=True, type=command_line.not_empty, metavar="FILE", help=command_line.DATA_HELP
    )
    parser.add_argument("--out", required=True, type=command_line.path, metavar="DIR", help="folder of the search")
    command_line.add_config_flags(parser)
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="number of trials (default: 20)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="number of processes (default: 1)")
    parser.add_argument(
        "--algorithm", choices=ALGORITHMS, default="bayesian", help="search algorithm (default: bayesian)"
    )
    parser.add_argument(
        "--objective",
        metavar="NAME",
        help="criterion to maximise: val_map (default with labels), label_free (default without labels), "
        f"{', '.join(OBJECTIVES[2:])}",
    )
    parser.add_argument(
        "--folds", type=int, default=1, metavar="K", help="cross-validation folds; 1 holds out a fifth (default: 1)"
    )
    parser.add_argument(
        "--trial-share",
        type=float,
        default=0.3,
        metavar="X",
        help="length of a trial as a fraction of the configured epochs (default: 0.3)",
    )
    parser.add_argument(
        "--weights", nargs="+", metavar="NAME", help="search only these weights, such as balance (default: all)"
    )
    parser.add_argument(
        "--tune-also",
        nargs="+",
        default=[],
        metavar="NAME",
        help="also search input_norm, rates or epochs, or any number of the configuration: KEY=LOW:HIGH",
    )
    parser.add_argument(
        "--grid-points", type=int, default=5, metavar="N", help="values per weight for --algorithm grid (default: 5)"
    )
    parser.add_argument(
        "--queries", type=int, metavar="N", help="size of the query set, which is not used (default: as in training)"
    )
    parser.add_argument(
        "--train-pairs", type=int, metavar="N", help="size of the training set (default: all pairs but the queries)"
    )
    command_line.add_protocol_flag(parser)
    parser.add_argument("--overwrite", action="store_true", help="delete the search in --out first")
    arguments = parser.parse_args()
    # Before the imports, which take seconds.
    die_with_parent()
    command_line.run(run, arguments, resumes=True)


def run(arguments: argparse.Namespace) -> int:
    """Runs the search, or one process of it."""
    if arguments.workers < 1:
        raise ValueError(f"`--workers` must be at least 1. Received: {arguments.workers}.")
    folder = SearchFolder(arguments.out)
    search = WeightSearch.from_flags(arguments, folder)
    if "KERASTUNER_ORACLE_IP" in os.environ:
        _run_member(search)
        return 0
    with folder.locked():
        if arguments.overwrite:
            folder.clear()
        search.begin(sys.stdout)
        result = folder.finished(search.trials)
        if result is not None:
            print(f"The search in {folder.path} is already finished. Use --overwrite to search again.")
            print(describe_result(result, folder), end="")
            return 0
        try:
            search.run(arguments.workers, [sys.executable, "-m", "tuner.search", *sys.argv[1:]])
        except WorkerDied as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        return search.finish(sys.stdout)


def _run_member(search: WeightSearch) -> None:
    """Runs the chief or a worker, according to KerasTuner's environment variables."""
    from tuner.weight_tuner import make_tuner

    is_chief = os.environ.get("KERASTUNER_TUNER_ID") == "chief"
    # If one command started all processes, it has locked and claimed the folder.
    is_alone = PARENT_VARIABLE not in os.environ
    with search.folder.locked() if is_alone and is_chief else contextlib.nullcontext():
        if is_alone:
            search.folder.claim(search.describe())
        make_tuner(search, sys.stdout).search()


@dataclass
class WeightSearch:
    """A search for loss weights.

    Attributes:
        folder: where everything is written.
        space: the values to search.
        pool: the database; its first `num_train` pairs are the training set. It must not contain queries.
        num_train: size of the training set.
        objective: the criterion to maximise, see `tuner.criteria`; "" for val_map if there are labels, and the
            label-free criterion otherwise.
        algorithm: one of `ALGORITHMS`.
        trials: the maximum number of trials; a grid has as many trials as points.
        folds: of the training set.
        trial_share: length of a trial as a fraction of the configured epochs.
        data_name: for the description.

    Raises:
        ValueError: if the settings are invalid.
    """

    folder: SearchFolder
    space: SearchSpace
    pool: PairedData
    num_train: int
    objective: str = ""
    algorithm: str = "bayesian"
    trials: int = 20
    folds: int = 1
    trial_share: float = 0.3
    data_name: str = ""

    def __post_init__(self) -> None:
        _check_settings(self.space, self.algorithm, self.trials)
        self.objective = resolve_objective(self.objective or None, self.pool.labels is not None)
        if self.algorithm == "grid":
            self.trials = math.prod(len(dimension.values) for dimension in self.space.dimensions)

    @classmethod
    def from_flags(cls, arguments: argparse.Namespace, folder: SearchFolder) -> WeightSearch:
        """The search that the flags describe. Checks them before it loads the data."""
        config = command_line.config_from_flags(arguments)
        space = make_space(
            config,
            weights=arguments.weights,
            extras=arguments.tune_also,
            grid_points=arguments.grid_points if arguments.algorithm == "grid" else None,
        )
        _check_settings(space, arguments.algorithm, arguments.trials)
        resolve_objective(arguments.objective, has_labels=True)

        from cmimh_tf.data.splits import split_data

        data = command_line.load_data(arguments.data, config.seed)
        splits = split_data(
            data,
            config.seed,
            num_queries=arguments.queries,
            num_train=arguments.train_pairs,
            protocol=arguments.protocol,
        )
        return cls(
            folder=folder,
            space=space,
            pool=data.take(splits.database),
            num_train=len(splits.train),
            objective=arguments.objective or "",
            algorithm=arguments.algorithm,
            trials=arguments.trials,
            folds=arguments.folds,
            trial_share=arguments.trial_share,
            data_name=str(arguments.data),
        )

    def begin(self, stream: TextIO) -> None:
        """Claims the folder and prints what will be done."""
        from tuner.hypermodel import check_folds

        check_folds(self.folds, self.num_train)
        self.folder.claim(self.describe())
        held_out = f"{self.folds} folds" if self.folds > 1 else "a fifth held out"
        stream.write(
            f"{self.data_name}: {self.num_train:,} training pairs with {held_out}, {len(self.pool):,} in the database\n"
            f"{self.algorithm} search of {self.trials} trials for {self.objective}; the first one as configured\n"
        )
        stream.flush()

    def describe(self) -> dict[str, Any]:
        """Everything that affects a trial. The number of trials does not: a search may be extended."""
        return {
            "data": {"name": self.data_name, "fingerprint": self.pool.fingerprint(), "train_pairs": self.num_train},
            "objective": self.objective,
            "algorithm": self.algorithm,
            "folds": self.folds,
            "trial_share": self.trial_share,
            "space": self.space.to_dict(),
            "config": self.space.config.to_dict(),
        }

    def run(self, workers: int, member_command: Sequence[str]) -> None:
        """Runs the missing trials.

        Args:
            workers: number of processes that run trials; 1 runs them in this process.
            member_command: the command of the chief and of each worker.

        Raises:
            WorkerDied: if a process of the search failed.
        """
        show_trials = self.trial_table(sys.stdout, workers)
        show_trials()
        if sum(record.status != RUNNING for record in self.records()) >= self.trials:
            return
        if workers > 1:
            run_chief_and_workers(member_command, workers, self.folder.logs, on_poll=show_trials)
            show_trials()
            return
        from tuner.weight_tuner import make_tuner

        self.folder.logs.mkdir(parents=True, exist_ok=True)
        # KerasTuner prints to standard output when it reloads a search.
        with (self.folder.logs / "search.log").open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log):
            make_tuner(self, log, on_trial=show_trials).search()

    def records(self) -> list[TrialRecord]:
        """The trials so far."""
        return read_trials(self.folder.trials, self.space.keys)

    def trial_table(self, stream: TextIO, workers: int = 1) -> Callable[[], None]:
        """A function that prints the trials that have ended since its last call, and updates trials.csv."""
        table = TrialTable(self.objective, self.space.keys, self.trials, workers, stream)

        def show_trials() -> None:
            records = self.records()
            if table.update(records):
                write_csv(self.folder.csv, records, self.space.keys)

        return show_trials

    def finish(self, stream: TextIO) -> int:
        """Writes trials.csv, best.json, report.html and result.json, and prints the result.

        Returns:
            The exit status: 0, or 1 if no trial succeeded.
        """
        records = self.records()
        write_csv(self.folder.csv, records, self.space.keys)
        result = summarise(
            records,
            self.objective,
            asked_trials=self.trials,
            algorithm=self.algorithm,
            folds=self.folds,
            trial_share=self.trial_share,
        )
        if result is None:
            reasons = [record.reason for record in records if record.reason]
            stream.write(f"error: no trial succeeded. The last one failed: {reasons[-1] if reasons else 'unknown'}\n")
            return 1
        write_results(self.folder, self.describe(), records, self.space.overrides(result["best"]), result)
        stream.write(describe_result(result, self.folder))
        stream.flush()
        return 0


def _check_settings(space: SearchSpace, algorithm: str, trials: int) -> None:
    if trials < 1:
        raise ValueError(f"`trials` must be at least 1. Received: trials={trials}.")
    if algorithm == "hyperband" and {"training.epochs", "training.steps"} & set(space.keys):
        raise ValueError("`algorithm` must not be hyperband if epochs are searched: Hyperband sets them itself.")
    if algorithm == "grid" and len(space.dimensions) > 2:
        raise ValueError(
            "`weights` must name one or two weights for a grid, such as --weights balance. "
            f"Received: {', '.join(space.keys)}."
        )


if __name__ == "__main__":
    main()
