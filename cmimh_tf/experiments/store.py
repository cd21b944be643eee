"""Results of cells on disk: one file each, there in full or not at all."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.atomic import write_json
from cmimh_tf.experiments.cell import Cell


@dataclass(frozen=True)
class CellStore:
    """The folder of all cells that were measured on one data set.

    Attributes:
        folder: holds for each cell <stem>.json, or <stem>.failed.json, and <stem>.log.
        data_fingerprint: of the data set.
    """

    folder: Path
    data_fingerprint: str

    def path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.file_stem(self.data_fingerprint)}.json"

    def log_path(self, cell: Cell) -> Path:
        return self.path(cell).with_suffix(".log")

    def failure_path(self, cell: Cell) -> Path:
        return self.path(cell).with_suffix(".failed.json")

    def load(self, cell: Cell) -> dict[str, Any] | None:
        """The result of a cell, or None if it has none yet.

        Raises:
            ValueError: if the file is not a result, naming it.
        """
        path = self.path(cell)
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{path} must hold the result of a cell: {error}. Delete it to measure again.") from error
        if not isinstance(result, dict) or "metrics" not in result:
            raise ValueError(f"{path} must hold the result of a cell, with `metrics`. Delete it to measure again.")
        return result

    def save(self, cell: Cell, result: dict[str, Any]) -> None:
        """Writes the result of a cell, and forgets that it failed before."""
        write_json(self.path(cell), {"cell": cell.identity(self.data_fingerprint), **result})
        self.failure_path(cell).unlink(missing_ok=True)

    def save_failure(self, cell: Cell, error: str) -> None:
        """Records why a cell failed; the next run tries it again."""
        write_json(self.failure_path(cell), {"cell": cell.identity(self.data_fingerprint), "error": error})
