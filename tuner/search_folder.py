"""The folder of a search, and what may be found in it.

search.json     what is searched, on which data, by which objective
trials.csv      one row a trial, with every criterion and what it cost
best.json       the best weights, for `--set @best.json`
result.json     the objective, its best value, and the search's cost; written last
report.html     curves of each weight, parallel coordinates, the best trials
trials/         KerasTuner's state
training/       checkpoints of running trials
logs/           how each training went
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.atomic import write_json
from cmimh_tf.locked_folder import LOCK_FILE, locked_folder
from cmimh_tf.training.run_folder import first_difference


@dataclass(frozen=True)
class SearchFolder:
    """Paths of one search.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def description(self) -> Path:
        return self.path / "search.json"

    @property
    def csv(self) -> Path:
        return self.path / "trials.csv"

    @property
    def best(self) -> Path:
        return self.path / "best.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def trials(self) -> Path:
        return self.path / "trials"

    @property
    def training(self) -> Path:
        return self.path / "training"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def claim(self, description: dict[str, Any]) -> None:
        """Makes the folder this search's, or checks that it already is.

        Args:
            description: all that decides what a trial is, JSON-ready.

        Raises:
            ValueError: if the folder holds another search, naming the first key that differs.
        """
        if not self.description.exists():
            write_json(self.description, description)
            return
        existing = json.loads(self.description.read_text(encoding="utf-8"))
        difference = first_difference(existing, json.loads(json.dumps(description)))
        if difference:
            raise ValueError(
                f"{self.path} holds another search: {difference}. Choose another folder, or --overwrite this one."
            )

    def clear(self) -> None:
        """Deletes a search that is there, but for the lock on it; a folder without one is left alone."""
        if not self.description.exists():
            return
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK_FILE:
                path.unlink()

    def finished(self, trials: int) -> dict[str, Any] | None:
        """The result of a search of at least that many trials, None if it is still to be run."""
        if not self.result.exists():
            return None
        result = json.loads(self.result.read_text(encoding="utf-8"))
        return result if result["asked_trials"] >= trials else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder for this process; the lock goes with the process, however it ends.

        Raises:
            ValueError: if another search holds it.
        """
        with locked_folder(
            self.path,
            lambda process: ValueError(
                f"`out` must not be in use. Received: {self.path}, where a search is running (process {process})."
            ),
        ):
            yield
