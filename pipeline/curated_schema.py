"""From the schema that was inferred on the first run to one that later data can be held to."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from cmimh_tf.atomic import write_text
from pipeline.features import CAPTION, ID


def curate(inferred: Path, curated: Path) -> None:
    """Writes the curated schema.

    In a small set every id and every caption looks like a value from a fixed list; new data would then all be
    anomalies.

    Args:
        inferred: schema.pbtxt of SchemaGen.
        curated: where to write; the user may edit it.
    """
    schema = text_format.Parse(inferred.read_text(encoding="utf-8"), schema_pb2.Schema())
    dropped = {feature.domain for feature in schema.feature if feature.name in (CAPTION, ID) and feature.domain}
    for feature in schema.feature:
        if feature.name in (CAPTION, ID):
            feature.ClearField("domain_info")
    for domain in [domain for domain in schema.string_domain if domain.name in dropped | {CAPTION, ID}]:
        schema.string_domain.remove(domain)
    write_text(curated, text_format.MessageToString(schema))
