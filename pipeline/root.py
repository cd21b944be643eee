"""The folder that holds all runs of a pipeline: its paths, its lock and its schema.

metadata.db        ML Metadata
artifacts/         the output of each component
schema/            the curated schema
training/          checkpoints of a training that was interrupted
tuning/            searches for loss weights
features/          features computed by a run that was interrupted
serving_model/     cmimh/1, cmimh/2, ...
index/             1, 2, ...: the search indexes of these models
checksums/         of the components' outputs
logs/              one log file per run
data.json          the data set that the root belongs to
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cmimh_tf.files import locked_folder, read_json, write_json, write_text


@dataclass(frozen=True)
class PipelineRoot:
    """Paths below one root.

    Attributes:
        path: the root; absolute, because ML Metadata records it.
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
    def tuning(self) -> Path:
        return self.path / "tuning"

    @property
    def features(self) -> Path:
        return self.path / "features"

    @property
    def serving(self) -> Path:
        return self.path / "serving_model" / "cmimh"

    @property
    def index(self) -> Path:
        return self.path / "index"

    @property
    def checksums(self) -> Path:
        return self.path / "checksums"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the root for this process. The lock is released when the process ends, even if it is killed.

        Raises:
            ValueError: if another run holds the lock.
        """
        with locked_folder(
            self.path,
            lambda process: ValueError(
                f"Another run (process {process}) is using {self.path}. Wait until it has finished, or choose another "
                "--root."
            ),
        ):
            yield

    def claim(self, source: str) -> None:
        """Ties the root to one data set, since models of different data cannot be compared or replace each other.

        Raises:
            ValueError: if the root belongs to other data.
        """
        path = self.path / "data.json"
        if not path.exists():
            write_json(path, {"data": source}, checksum=True)
            return
        known = read_json(path)["data"]
        if known != source:
            raise ValueError(
                f"`--root` must name a root of the same data, or a new one. {self.path} belongs to {known}. "
                f"Received: {source}."
            )

    def curate_schema(self, inferred: Path) -> None:
        """Turns the schema that SchemaGen inferred on the first run into one that later data can be checked against.

        In a small data set, every id and every caption looks like a value from a fixed list. New data would then
        consist of anomalies only, so these lists are dropped.

        Args:
            inferred: schema.pbtxt of SchemaGen.
        """
        # Importing this module must stay fast.
        from google.protobuf import text_format
        from tensorflow_metadata.proto.v0 import schema_pb2

        from pipeline.examples import CAPTION, ID

        schema = text_format.Parse(inferred.read_text(encoding="utf-8"), schema_pb2.Schema())
        free_text = [feature for feature in schema.feature if feature.name in (CAPTION, ID)]
        dropped = {CAPTION, ID} | {feature.domain for feature in free_text if feature.domain}
        for feature in free_text:
            feature.ClearField("domain_info")
        for domain in [domain for domain in schema.string_domain if domain.name in dropped]:
            schema.string_domain.remove(domain)
        write_text(self.schema, text_format.MessageToString(schema))

    def pin_schema(self, schema_file: Path) -> str:
        """Copies a schema to a path derived from its content, since TFX does not notice an edited file."""
        text = schema_file.read_text(encoding="utf-8")
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        pinned = self.path / "schema" / "versions" / name / "schema.pbtxt"
        write_text(pinned, text)
        return str(pinned)
