"""The curated schema, and the anomalies that stop a run."""

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

from pipeline.components.strict_example_validator import raise_anomalies
from pipeline.curated_schema import curate
from pipeline.sources import DataError

INFERRED = """
feature { name: "caption" type: BYTES domain: "caption" shape { dim { size: 1 } } }
feature { name: "image" type: FLOAT shape { dim { size: 3 } } }
string_domain { name: "caption" value: "A dog" }
"""


def test_captions_are_not_a_fixed_list(tmp_path):
    (tmp_path / "inferred.pbtxt").write_text(INFERRED)
    curate(tmp_path / "inferred.pbtxt", tmp_path / "curated.pbtxt")
    schema = text_format.Parse((tmp_path / "curated.pbtxt").read_text(), schema_pb2.Schema())
    assert not schema.string_domain
    assert not schema.feature[0].HasField("domain")
    assert schema.feature[1].shape.dim[0].size == 3


def test_anomaly_is_told_with_split_feature_and_reason():
    anomalies = anomalies_pb2.Anomalies()
    anomalies.anomaly_info["text"].short_description = "Column dropped"
    anomalies.anomaly_info["text"].description = "The feature was present in fewer examples than expected."
    with pytest.raises(DataError, match=r"query, feature `text`: Column dropped. The feature was present in fewer"):
        raise_anomalies({"train": anomalies_pb2.Anomalies(), "query": anomalies})


def test_no_anomaly_is_no_error():
    raise_anomalies({"train": anomalies_pb2.Anomalies()})
