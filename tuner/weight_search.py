"""One search from a description to best weights: alone, or with a chief and workers."""

from __future__ import annotations

import argparse
import contextlib
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from cmimh_tf import command_line
from cmimh_tf.atomic import write_json
from tuner.criteria import resolve_objective
from tuner.search_folder import SearchFolder
from tuner.search_result import describe_result, summarise
from tuner.search_space import SearchSpace, make_space
from tuner.trial_records import RUNNING, TrialRecord, read_trials, write_csv
from tuner.trial_table import TrialTable
from tuner.workers import run_chief_and_workers

if TYPE_CHECKING:
    from cmimh_tf.data.paired import PairedData
    from tuner.weight_tuner import WeightTuner


@dataclass
class WeightSearch:
    """A search over loss weights.

    Attributes:
        folder: where everything goes.
        space: what is searched.
        pool: the database, its first `num_train` pairs being the training set; the queries are not in it.
        num_train: size of the training set.
        objective: the criterion to maximise, see `tuner.criteria`; None for val_map where there are labels, and the
            label-free one where not.
        algorithm: one of `ALGORITHMS`.
        trials: the most to run; a grid has as many as it has points.
        folds: of the training set.
        trial_share: share of the epochs that a trial is trained for.
        data_name: for the description.

    Raises:
        ValueError: if these do not fit together.
    """

    folder: SearchFolder
    space: SearchSpace
    pool: PairedData
    num_train: int
    objective: str | None = None
    algorithm: str = "bayesian"
    trials: int = 20
    folds: int = 1
    trial_share: float = 0.3
    data_name: str = ""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"`trials` must be at least 1. Received: trials={self.trials}.")
        if self.algorithm == "hyperband" and "training.epochs" in self.space.keys:
            raise ValueError("`algorithm` must not be hyperband when epochs are searched: it sets them itself.")
        if self.algorithm == "grid":
            if len(self.space.dimensions) > 2:
                raise ValueError(
                    "`weights` must name one or two for a grid, such as --weights balance. "
                    f"Received: {', '.join(self.space.keys)}."
                )
            self.trials = math.prod(len(dimension.values) for dimension in self.space.dimensions)
        self.objective = resolve_objective(self.objective, self.pool.labels is not None)

    @classmethod
    def from_flags(cls, arguments: argparse.Namespace, folder: SearchFolder) -> WeightSearch:
        """The search that the flags of `tuner.search` describe."""
        from cmimh_tf.data.splits import split_data

        config = command_line.config_from_flags(arguments)
        space = make_space(
            config,
            weights=arguments.weights,
            extras=arguments.tune_also,
            grid_points=arguments.grid_points if arguments.algorithm == "grid" else None,
        )
        data = command_line.load_data(arguments.data, config.seed)
        splits = split_data(data, config.seed, num_queries=arguments.queries, num_train=arguments.train_pairs)
        return cls(
            folder=folder,
            space=space,
            pool=data.take(splits.database),
            num_train=len(splits.train),
            objective=arguments.objective,
            algorithm=arguments.algorithm,
            trials=arguments.trials,
            folds=arguments.folds,
            trial_share=arguments.trial_share,
            data_name=str(arguments.data),
        )

    def begin(self, stream: TextIO) -> None:
        """Claims the folder and says what will be done."""
        self.folder.claim(self.describe())
        held_out = f"{self.folds} folds" if self.folds > 1 else "a fifth held out"
        stream.write(
            f"{self.data_name}: {self.num_train:,} training pairs with {held_out}, {len(self.pool):,} in the database\n"
            f"{self.algorithm} search of {self.trials} trials for {self.objective}, the preset first\n"
        )
        stream.flush()

    def describe(self) -> dict[str, Any]:
        """All that decides what a trial is. The number of trials is not in it: a search may be prolonged."""
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
        """Runs the trials that are missing.

        Args:
            workers: processes that run trials; 1 runs them in this one.
            member_command: what a chief or a worker runs, for more than one.

        Raises:
            WorkerDied: if a process of the search failed.
        """
        tell = self.teller(sys.stdout, workers)
        tell()
        if sum(record.status != RUNNING for record in self.records()) >= self.trials:
            return
        if workers > 1:
            run_chief_and_workers(member_command, workers, self.folder.logs, on_poll=tell)
            tell()
            return
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        with (self.folder.logs / "search.log").open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log):
            # KerasTuner prints what it reloads.
            self.make_tuner(log, on_trial=tell).search()

    def run_as_member(self) -> None:
        """Runs the chief's or a worker's part, as KerasTuner's environment variables say."""
        self.make_tuner(sys.stdout).search()

    def make_tuner(
        self,
        progress: TextIO,
        on_trial: Callable[[], None] | None = None,
        on_end: Callable[[], Any] | None = None,
    ) -> WeightTuner:
        """The tuner of this search; trials that are already there are not run again.

        Args:
            progress: where the trainings tell how they go.
            on_trial: called after each trial.
            on_end: called after the last.
        """
        from tuner.hypermodel import WeightHyperModel
        from tuner.oracles import make_oracle
        from tuner.weight_tuner import WeightTuner

        hypermodel = WeightHyperModel(
            self.space,
            self.pool,
            self.num_train,
            folds=self.folds,
            trial_share=self.trial_share,
            training_root=self.folder.training,
            keep_checkpoints=self.algorithm == "hyperband",
            progress=progress,
        )
        config = self.space.config
        oracle = make_oracle(
            self.algorithm,
            self.objective,
            self.space.hyperparameters(),
            trials=self.trials,
            seed=config.seed,
            max_epochs=max(1, round(self.trial_share * config.training.epochs)),
        )
        return WeightTuner(oracle, hypermodel, self.folder.path, on_trial, on_end)

    def records(self) -> list[TrialRecord]:
        """What is known of the trials so far."""
        return read_trials(self.folder.trials, self.space.keys)

    def teller(self, stream: TextIO, workers: int = 1) -> Callable[[], None]:
        """A function that brings the table on the screen and trials.csv up to date."""
        table = TrialTable(self.objective, self.space.keys, self.trials, workers, stream)

        def tell() -> None:
            records = self.records()
            if table.update(records):
                write_csv(self.folder.csv, records, self.space.keys)

        return tell

    def conclude(self, stream: TextIO) -> int:
        """Writes trials.csv, best.json, the report and result.json, and says what was found.

        Returns:
            0, or 1 when no trial succeeded.
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
            stream.write(f"error: no trial succeeded; the last reason: {reasons[-1] if reasons else 'unknown'}\n")
            return 1
        # matplotlib, which the workers do not need.
        from tuner.report import write_report

        write_json(self.folder.best, self.space.overrides(result["best"]))
        write_report(self.folder.report, self.describe(), records, result)
        shutil.rmtree(self.folder.training, ignore_errors=True)
        write_json(self.folder.result, result)
        stream.write(describe_result(result, self.folder))
        stream.flush()
        return 0
