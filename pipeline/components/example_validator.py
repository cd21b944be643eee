"""ExampleValidator: TFX's own component, with an executor that stops the run at an anomaly."""

import os
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.components.example_validator import executor as tfx_executor
from tfx.types import Artifact, artifact_utils, standard_component_specs
from tfx.utils import io_utils

from cmimh_tf.data.records import DataError

ANOMALIES_FILE = "SchemaDiff.pb"


class StrictExampleValidatorExecutor(tfx_executor.Executor):
    """Runs TFX's executor, then raises an error that names each anomalous feature and the reason."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> Any:
        output = super().Do(input_dict, output_dict, exec_properties)
        artifact = artifact_utils.get_single_instance(output_dict[standard_component_specs.ANOMALIES_KEY])
        found = {}
        for split in artifact_utils.decode_split_names(artifact.split_names):
            found[split] = read_anomalies(artifact.uri, split)
        raise_anomalies(found)
        return output


def read_anomalies(uri: str, split: str) -> anomalies_pb2.Anomalies:
    """Reads the anomalies that ExampleValidator found in one split."""
    path = os.path.join(uri, f"Split-{split}", ANOMALIES_FILE)
    anomalies = anomalies_pb2.Anomalies()
    anomalies.ParseFromString(io_utils.read_bytes_file(path))
    return anomalies


def raise_anomalies(anomalies_by_split: dict[str, anomalies_pb2.Anomalies]) -> None:
    """Raises a DataError if there is any anomaly."""
    reasons = []
    for split, anomalies in anomalies_by_split.items():
        if anomalies.dataset_anomaly_info.description:
            reasons.append(f"{split}: {anomalies.dataset_anomaly_info.description}")
        for feature, info in anomalies.anomaly_info.items():
            reasons.append(f"{split}, feature `{feature}`: {info.short_description}. {info.description}")
    if reasons:
        raise DataError("The data do not match the schema.\n  " + "\n  ".join(reasons))
