"""One run at a time in a root, one data set for a root, and schemas that are noticed when they change."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.root import PipelineRoot

ROOT = Path(__file__).resolve().parents[2]
INFERRED = """
feature { name: "caption" type: BYTES domain: "caption" shape { dim { size: 1 } } }
feature { name: "image" type: FLOAT shape { dim { size: 3 } } }
string_domain { name: "caption" value: "A dog" }
"""


def test_second_run_is_refused_with_the_first_ones_process(tmp_path):
    root = PipelineRoot(tmp_path)
    with (
        root.locked(),
        pytest.raises(ValueError, match=r"Another run \(process \d+\) is using .*--root"),
        root.locked(),
    ):
        pass
    with root.locked():
        pass


def test_a_file_is_no_root(tmp_path):
    (tmp_path / "afile").touch()
    with (
        pytest.raises(NotADirectoryError, match=r"afile must be a folder to write to\. Received: a file\.$"),
        PipelineRoot(tmp_path / "afile").locked(),
    ):
        pass


def test_lock_goes_with_a_killed_process(tmp_path):
    code = (
        "import os, signal; from pathlib import Path; from pipeline.root import PipelineRoot\n"
        f"with PipelineRoot(Path({str(tmp_path)!r})).locked(): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == -9
    with PipelineRoot(tmp_path).locked():
        pass


def test_root_belongs_to_one_data_set(tmp_path):
    root = PipelineRoot(tmp_path)
    root.claim("emoji")
    root.claim("emoji")
    with pytest.raises(ValueError, match=r"belongs to emoji. Received: other.npz"):
        root.claim("other.npz")


def test_edited_schema_gets_another_path(tmp_path):
    root, schema = PipelineRoot(tmp_path), tmp_path / "mine.pbtxt"
    paths = []
    for text in ("a", "b", "a"):
        schema.write_text(text)
        paths.append(root.pin_schema(schema))
    assert paths[0] == paths[2] != paths[1]
    assert Path(paths[1]).read_text() == "b"


def test_captions_are_not_a_fixed_list(tmp_path):
    (tmp_path / "inferred.pbtxt").write_text(INFERRED)
    root = PipelineRoot(tmp_path)
    root.curate_schema(tmp_path / "inferred.pbtxt")
    schema = text_format.Parse(root.schema.read_text(), schema_pb2.Schema())
    assert not schema.string_domain
    assert not schema.feature[0].HasField("domain")
    assert schema.feature[1].shape.dim[0].size == 3
