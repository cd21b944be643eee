"""How well the criteria without labels agree with val_map: `python -m tuner.criteria_agreement DIR`.

Every trial records all criteria, whichever of them is the objective. On data with labels, the others can be compared
with val_map.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cmimh_tf import command_line
from tuner.criteria import LABEL_FREE_CRITERIA, VAL_MAP

_MIN_TRIALS = 3


@dataclass(frozen=True)
class Agreement:
    """One criterion compared with val_map over the same trials.

    Attributes:
        criterion: its name.
        spearman: rank correlation, 1 if both rank all trials equally; NaN for a constant criterion.
        chosen_val_map: val_map of the trial that the criterion ranks first.
        regret: the difference between the best val_map and `chosen_val_map`.
    """

    criterion: str
    spearman: float
    chosen_val_map: float
    regret: float


def measure_agreement(rows: Sequence[Mapping[str, float]]) -> list[Agreement]:
    """Compares each label-free criterion with val_map; the one that agrees best comes first.

    Args:
        rows: the criteria of each completed trial.

    Raises:
        ValueError: if there are fewer than 3 trials, or no val_map.
    """
    if len(rows) < _MIN_TRIALS or any(VAL_MAP not in row for row in rows):
        raise ValueError(f"`rows` must be at least {_MIN_TRIALS} trials with {VAL_MAP}. Received: {len(rows)} trials.")
    from scipy.stats import spearmanr

    val_map = [row[VAL_MAP] for row in rows]
    found = []
    for criterion in LABEL_FREE_CRITERIA:
        scores = [row[criterion] for row in rows]
        is_constant = len(set(scores)) == 1 or len(set(val_map)) == 1
        spearman = math.nan if is_constant else float(spearmanr(scores, val_map).statistic)
        chosen = val_map[max(range(len(scores)), key=scores.__getitem__)]
        found.append(Agreement(criterion, spearman, chosen, max(val_map) - chosen))
    return sorted(found, key=lambda item: (math.isnan(item.spearman), -item.spearman))


def read_criteria(path: Path) -> list[dict[str, float]]:
    """Reads the criteria of the completed trials.

    Args:
        path: the folder of a search, or its trials.csv.

    Raises:
        ValueError: if there is no such file, or it has no val_map.
    """
    file = path / "trials.csv" if path.is_dir() else path
    try:
        with file.open(encoding="utf-8", newline="") as text:
            rows = [row for row in csv.DictReader(text) if row.get("status") == "completed"]
    except OSError as error:
        raise ValueError(f"`path` must be a search's folder or its trials.csv. Received: {path}: {error}.") from error
    names = (VAL_MAP, *LABEL_FREE_CRITERIA)
    missing = [name for name in names if rows and not rows[0].get(name)]
    if missing:
        raise ValueError(f"{file} must have the columns {', '.join(names)}. Received: no {', '.join(missing)}.")
    return [{name: float(row[name]) for name in names} for row in rows]


def main() -> None:
    """Parses the arguments and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tuner.criteria_agreement",
        description="Compares the criteria without labels with val_map, over the trials of one search.",
    )
    parser.add_argument("path", type=Path, help="folder of a search on data with labels, or its trials.csv")
    command_line.run(_print_agreement, parser.parse_args())


def _print_agreement(arguments: argparse.Namespace) -> None:
    rows = read_criteria(arguments.path)
    agreements = measure_agreement(rows)
    print(f"{len(rows)} trials, best val_map {max(row[VAL_MAP] for row in rows):.4f}")
    print(f"{'criterion':<24}{'Spearman':>10}{'val_map of its choice':>24}{'regret':>10}")
    for item in agreements:
        print(f"{item.criterion:<24}{item.spearman:>10.3f}{item.chosen_val_map:>24.4f}{item.regret:>10.4f}")


if __name__ == "__main__":
    main()
