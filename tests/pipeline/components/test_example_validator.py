"""Anomalies stop a run."""

import pytest
from tensorflow_metadata.proto.v0 import anomalies_pb2

from cmimh_tf.data.records import DataError
from pipeline.components.example_validator import raise_anomalies


def test_anomaly_is_reported_with_split_feature_and_reason():
    anomalies = anomalies_pb2.Anomalies()
    anomalies.anomaly_info["text"].short_description = "Column dropped"
    anomalies.anomaly_info["text"].description = "The feature was present in fewer examples than expected."
    with pytest.raises(DataError, match=r"query, feature `text`: Column dropped. The feature was present in fewer"):
        raise_anomalies({"train": anomalies_pb2.Anomalies(), "query": anomalies})


def test_no_anomaly_is_no_error():
    raise_anomalies({"train": anomalies_pb2.Anomalies()})
