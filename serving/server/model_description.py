"""Status and metadata of models, as messages for gRPC and as JSON for REST."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from serving.server.model_store import VersionStatus
from serving.server.servable import Servable

SIGNATURE_DEF = "signature_def"


def status_message(statuses: Mapping[int, VersionStatus]) -> get_model_status_pb2.GetModelStatusResponse:
    """The states of a model's versions."""
    response = get_model_status_pb2.GetModelStatusResponse()
    for version, status in statuses.items():
        entry = response.model_version_status.add()
        entry.version = version
        entry.state = get_model_status_pb2.ModelVersionStatus.State.Value(status.state)
        entry.status.error_code = status.error_number
        entry.status.error_message = status.error_message
    return response


def status_json(statuses: Mapping[int, VersionStatus]) -> bytes:
    """The same as JSON, where versions are strings."""
    entries = [
        {
            "version": str(version),
            "state": status.state,
            "status": {"error_code": status.error_code, "error_message": status.error_message},
        }
        for version, status in statuses.items()
    ]
    return orjson.dumps({"model_version_status": entries}, option=orjson.OPT_INDENT_2) + b"\n"


def metadata_message(servable: Servable) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Name, version and signatures."""
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = servable.name
    response.model_spec.version.value = servable.version
    response.metadata[SIGNATURE_DEF].Pack(_signatures(servable))
    return response


def metadata_json(servable: Servable) -> bytes:
    """The same as JSON."""
    # The option has another name in later protobuf releases.
    signatures = json_format.MessageToDict(
        _signatures(servable), preserving_proto_field_name=True, including_default_value_fields=True
    )
    document = {
        "model_spec": {"name": servable.name, "signature_name": "", "version": str(servable.version)},
        "metadata": {SIGNATURE_DEF: signatures},
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def _signatures(servable: Servable) -> get_model_metadata_pb2.SignatureDefMap:
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in servable.signature_defs.items():
        signatures.signature_def[name].CopyFrom(signature)
    return signatures
