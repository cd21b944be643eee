"""The folder of a training run:

config.json     the resolved configuration, the data it was trained on, and the split
model.keras     the trained model, written last
metrics.json    the measures on query and database
code_profile.json  statistics of the queries' codes, to compare those of new data with
history.csv     every term after every epoch
checkpoints/    to resume from, and training.json, which says what they belong to
.checksums.sha256  of the files above, which are compared when they are read
tensorboard/    the same curves for TensorBoard
vectors/        the vectors of shards that are too large for memory, until the run is complete
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmimh_tf.checksums import CHECKSUM_FILE, DamagedFile, verify
from cmimh_tf.config import CMIMHConfig
from cmimh_tf.files import atomic_path, locked_folder, read_json, read_text, remove_folder, write_json, write_text

if TYPE_CHECKING:
    from cmimh_tf.model import CMIMH

# Columns of history.csv as version 0.1 wrote them.
_RENAMED_COLUMNS = {"objective": "loss", "total_correlation": "independence"}


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def model(self) -> Path:
        return self.path / "model.keras"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def profile(self) -> Path:
        return self.path / "code_profile.json"

    @property
    def history(self) -> Path:
        return self.path / "history.csv"

    @property
    def best_weights(self) -> Path:
        return self.path / "checkpoints" / "best.weights.h5"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def neighbourhood(self) -> Path:
        return self.path / "checkpoints" / "neighbourhood"

    @property
    def vectors(self) -> Path:
        return self.path / "vectors"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder for this process.

        Raises:
            ValueError: if another training holds it.
        """
        with locked_folder(
            self.path,
            lambda process: ValueError(
                f"`out` must not be in use. Received: {self.path}, where a training is running (process {process})."
            ),
        ):
            yield

    def clear(self) -> None:
        """Deletes the files of a run and nothing else; config.json last, so that no rest is taken for another run.

        Without config.json the folder is not that of a run, and nothing is deleted.
        """
        if not self.config.exists():
            return
        for path in self._outputs():
            if path.is_dir():
                remove_folder(path)
            else:
                path.unlink(missing_ok=True)
        self.config.unlink(missing_ok=True)
        (self.path / CHECKSUM_FILE).unlink(missing_ok=True)

    def claim(self, description: dict[str, Any]) -> bool:
        """Reserves the folder for this run, or checks that it belongs to it.

        Args:
            description: configuration, data and split, JSON-ready.

        Returns:
            Whether the folder is new to this run.

        Raises:
            ValueError: if the folder holds another run, naming the first key that differs, or files of an unknown one.
        """
        is_new = not self.config.exists()
        if is_new and (unknown := next((path for path in self._outputs() if path.exists()), None)):
            raise ValueError(
                f"{self.path} must be a new folder or that of a run. Received: a folder that has {unknown.name} and no "
                f"{self.config.name}."
            )
        self._claim(self.config, description)
        return is_new

    def _outputs(self) -> list[Path]:
        return [self.model, self.metrics, self.profile, self.history, self.checkpoints, self.tensorboard]

    def claim_checkpoints(self, description: dict[str, Any]) -> None:
        """Reserves the checkpoints for this training, or checks that they belong to it.

        Args:
            description: configuration and training pairs, JSON-ready.

        Raises:
            ValueError: if they belong to another training, or it is not known to which.
        """
        identity = self.checkpoints / "training.json"
        if (self.checkpoints / "checkpoint").exists() and not identity.exists():
            raise ValueError(f"{self.checkpoints} must have a training.json beside its checkpoints. Delete the folder.")
        self._claim(identity, description)

    def _claim(self, file: Path, description: dict[str, Any]) -> None:
        if not file.exists():
            write_json(file, description, checksum=True)
            return
        existing, wanted = read_json(file), json.loads(json.dumps(description))
        stored = existing.get("config", {})
        if stored.get("neighbourhood", {}).get("neighbours") and "neighbourhood_weight" not in stored.get("loss", {}):
            raise ValueError(
                f"{self.path} was started by an earlier version, which reconstructed means over neighbours. It cannot "
                "be continued. Choose another folder, or delete this run with --overwrite."
            )
        for one in (existing, wanted):
            if "config" in one:
                # A run of an earlier version lacks the keys that were added since. Their defaults are what it did.
                one["config"] = json.loads(json.dumps(CMIMHConfig.from_dict(one["config"]).to_dict()))
        difference = first_difference(existing, wanted)
        if difference:
            raise ValueError(
                f"{self.path} holds another run: {difference}. Choose another folder, or delete this run with "
                "--overwrite."
            )

    def queries_of(self, data_fingerprint: str) -> int | None:
        """The size of the query set that the run was given, if it was on these data; None for the usual one."""
        if not self.config.exists():
            return None
        description = read_json(self.config)
        if description.get("data", {}).get("fingerprint") != data_fingerprint:
            return None
        return description["split"]["queries"]

    def save_model(self, model: CMIMH) -> None:
        """Writes model.keras atomically, without optimizer states: these belong to the checkpoints."""
        copy = type(model).from_config(model.get_config())
        copy.set_weights(model.get_weights())
        with atomic_path(self.model, suffix=".keras", checksum=True) as temporary:
            copy.save(temporary)

    def read_history(self, epochs: int | None = None) -> list[dict[str, float]]:
        """The rows of the first `epochs` epochs, or of all.

        Raises:
            DamagedFile: if history.csv is not what was written.
        """
        if not self.history.exists():
            return []
        rows: list[dict[str, float]] = []
        try:
            for row in csv.DictReader(io.StringIO(read_text(self.history))):
                values = {_RENAMED_COLUMNS.get(name, name): float(value) for name, value in row.items()}
                rows.append({**values, "epoch": int(row["epoch"])})
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DamagedFile):
                raise
            raise DamagedFile(f"{self.history} is damaged ({error}). Train again with --overwrite.") from error
        return rows[:epochs]

    def write_history(self, rows: list[dict[str, float]]) -> None:
        """Replaces history.csv."""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.history, text.getvalue(), checksum=True)


def model_file(path: str | Path) -> Path:
    """The model file of a run folder, or `path` itself if it is a `.keras` file. Imports no TensorFlow.

    Raises:
        FileNotFoundError: if there is none.
    """
    file = Path(path) / "model.keras" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"`model` must be the folder of a finished run (with model.keras) or a .keras file. Received: {path}."
        )
    return file


def load_model(path: str | Path) -> CMIMH:
    """The trained model of a run folder, or of a `.keras` file.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if the file is damaged, or not a CMIMH model.
    """
    file = model_file(path)
    verify(file)
    import keras

    from cmimh_tf.model import CMIMH

    try:
        model = keras.saving.load_model(file, compile=False)
    except Exception as error:
        raise ValueError(f"{file} cannot be read as a model: {error}") from error
    if not isinstance(model, CMIMH):
        raise ValueError(f"{file} must hold a CMIMH model. Received: a {type(model).__name__}.")
    return model


def first_difference(left: Any, right: Any, key: str = "") -> str | None:
    """The first dotted key at which two JSON values differ, with both values; None when they are equal."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in [*left, *(name for name in right if name not in left)]:
            difference = first_difference(left.get(name), right.get(name), f"{key}.{name}".lstrip("."))
            if difference:
                return difference
        return None
    return None if left == right else f"`{key}` is {left!r} there and {right!r} here"
