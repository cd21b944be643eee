"""The folder in which a pipeline's runs live: its paths, its lock, and whose it is.

metadata.db        ML Metadata
artifacts/         what components made
schema/            the curated schema
training/          checkpoints, kept when a run is killed
features/          features computed so far, likewise
serving_model/     cmimh/1, cmimh/2, ...
logs/              one file a run, with all that TFX and TensorFlow say
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cmimh_tf.atomic import write_json, write_text
from cmimh_tf.locked_folder import locked_folder


class RootInUse(RuntimeError):
    """Another run holds the folder."""


@dataclass(frozen=True)
class RunRoot:
    """Paths below one root.

    Attributes:
        path: the root, absolute: it is recorded in the metadata.
    """

    path: Path

    @property
    def metadata(self) -> Path:
        return self.path / "metadata.db"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def schema(self) -> Path:
        return self.path / "schema" / "schema.pbtxt"

    @property
    def training(self) -> Path:
        return self.path / "training"

    @property
    def serving(self) -> Path:
        return self.path / "serving_model" / "cmimh"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the root for this process; the lock goes with the process, however it ends.

        Raises:
            RootInUse: if another run holds it.
        """
        with locked_folder(
            self.path,
            lambda process: RootInUse(
                f"Another run (process {process}) is using {self.path}. Wait for it, or choose another --root."
            ),
        ):
            yield

    def claim(self, source: str) -> None:
        """Makes the root that of one data set: a model of other data is no baseline, and must not replace it.

        Raises:
            ValueError: if it belongs to other data.
        """
        path = self.path / "data.json"
        if not path.exists():
            write_json(path, {"data": source})
            return
        known = json.loads(path.read_text(encoding="utf-8"))["data"]
        if known != source:
            raise ValueError(
                f"`root` must be one for each data set: {self.path} is that of {known}. Received: {source}."
            )

    def pinned_schema(self, schema_file: Path) -> str:
        """A copy of a schema under a name made from its content: TFX would not notice an edited file."""
        text = schema_file.read_text(encoding="utf-8")
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        pinned = self.path / "schema" / "versions" / name / "schema.pbtxt"
        write_text(pinned, text)
        return str(pinned)
