"""TF Serving's configuration files: models.config, batching.config and monitoring.config, all in text format."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.config import model_server_config_pb2


@dataclass(frozen=True)
class ModelConfig:
    """One served model.

    Attributes:
        name: the name in requests.
        base_path: folder with one numbered folder per version.
        policy: "latest", "all" or "specific".
        num_versions: number of versions that "latest" serves.
        versions: the versions that "specific" serves.
        labels: version numbers by label.
    """

    name: str
    base_path: Path
    policy: str = "latest"
    num_versions: int = 1
    versions: tuple[int, ...] = ()
    labels: dict[str, int] = field(default_factory=dict)

    def choose(self, available: list[int]) -> list[int]:
        """The versions to serve, among those on disk."""
        if self.policy == "all":
            return sorted(available)
        if self.policy == "specific":
            return sorted(set(available) & set(self.versions))
        return sorted(available)[-self.num_versions :]


def read_model_configs(path: Path) -> list[ModelConfig]:
    """The models of a models.config. Relative base paths start at the file's folder.

    Raises:
        ValueError: if the file is not valid.
    """
    config = _parse(path, model_server_config_pb2.ModelServerConfig())
    models = [_model_config(path, entry) for entry in config.model_config_list.config]
    if not models:
        raise ValueError(f"{path}: `model_config_list` must hold at least one config. Received: none.")
    names = [model.name for model in models]
    if len(set(names)) != len(names):
        raise ValueError(f"{path}: each `name` must occur once. Received: {', '.join(names)}.")
    return models


def _model_config(path: Path, entry: Any) -> ModelConfig:
    if not entry.name or not entry.base_path:
        raise ValueError(f"{path}: `name` and `base_path` must be given. Received: {str(entry)!r}.")
    if entry.model_platform not in ("", "tensorflow"):
        raise ValueError(f"{path}: `model_platform` must be 'tensorflow'. Received: {entry.model_platform!r}.")
    policy = entry.model_version_policy.WhichOneof("policy_choice") or "latest"
    if policy == "specific" and not entry.model_version_policy.specific.versions:
        raise ValueError(
            f"{path}: `specific` must name at least one of the `versions` of {entry.name}. Received: none."
        )
    return ModelConfig(
        entry.name,
        path.parent / entry.base_path,
        policy,
        entry.model_version_policy.latest.num_versions or 1,
        tuple(entry.model_version_policy.specific.versions),
        dict(entry.version_labels),
    )


def read_batching_parameters(path: Path) -> dict[str, Any]:
    """The settings of a batching.config, by the names of our `Settings`; only those that the file has."""
    parameters = _parse(path, batching_parameters())
    settings: dict[str, Any] = {}
    if parameters.HasField("max_batch_size"):
        settings["max_batch_size"] = parameters.max_batch_size.value
    if parameters.HasField("batch_timeout_micros"):
        settings["batch_timeout"] = parameters.batch_timeout_micros.value / 1e6
    if parameters.HasField("max_enqueued_batches"):
        batch_size = settings.get("max_batch_size", 64)
        settings["max_enqueued_rows"] = parameters.max_enqueued_batches.value * batch_size
    if parameters.HasField("num_batch_threads"):
        settings["num_batch_threads"] = parameters.num_batch_threads.value
    return settings


def read_monitoring_config(path: Path) -> Any:
    """The message of a monitoring.config."""
    return _parse(path, monitoring_config())


def _parse(path: Path, message: Any) -> Any:
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a {message.DESCRIPTOR.name} in text format. Received: {error}.") from error


# tensorflow-serving-api lacks these two protos. The fields are those of TF Serving's
# tensorflow_serving/config/monitoring_config.proto and tensorflow_serving/servables/tensorflow/
# session_bundle_config.proto. The available copies of the latter end at field 7. The last two fields are taken from
# saved_model_bundle_factory_test.cc, by name and type; their numbers are guesses, which text files do not need.
_MESSAGES = {
    "BatchingParameters": [
        ("max_batch_size", 1, ".google.protobuf.Int64Value"),
        ("batch_timeout_micros", 2, ".google.protobuf.Int64Value"),
        ("max_enqueued_batches", 3, ".google.protobuf.Int64Value"),
        ("num_batch_threads", 4, ".google.protobuf.Int64Value"),
        ("thread_pool_name", 5, ".google.protobuf.StringValue"),
        ("allowed_batch_sizes", 6, "repeated int64"),
        ("pad_variable_length_inputs", 7, "bool"),
        ("enable_large_batch_splitting", 8, ".google.protobuf.BoolValue"),
        ("max_execution_batch_size", 9, ".google.protobuf.Int64Value"),
    ],
    "PrometheusConfig": [("enable", 1, "bool"), ("path", 2, "string")],
    "MonitoringConfig": [("prometheus_config", 1, ".cmimh_serving_files.PrometheusConfig")],
}
_SCALARS = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
}


def batching_parameters() -> Any:
    """An empty `BatchingParameters`."""
    return _new_message("BatchingParameters")


def monitoring_config() -> Any:
    """An empty `MonitoringConfig`."""
    return _new_message("MonitoringConfig")


def _new_message(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    wrappers = descriptor_pb2.FileDescriptorProto()
    wrappers_pb2.DESCRIPTOR.CopyToProto(wrappers)
    pool.Add(wrappers)
    file = descriptor_pb2.FileDescriptorProto(
        name="cmimh_serving_files.proto", package="cmimh_serving_files", syntax="proto3", dependency=[wrappers.name]
    )
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for field_name, number, kind in fields:
            proto = message.field.add(name=field_name, number=number, label=1)
            if kind.startswith("repeated "):
                proto.label, kind = 3, kind.removeprefix("repeated ")
            if kind in _SCALARS:
                proto.type = _SCALARS[kind]
            else:
                proto.type, proto.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, kind
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName(f"cmimh_serving_files.{name}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)()
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)()
