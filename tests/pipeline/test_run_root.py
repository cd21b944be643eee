"""One run at a time in a root, one data set for a root, and schemas that are noticed when they change."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.run_root import RootInUse, RunRoot

ROOT = Path(__file__).resolve().parents[2]


def test_second_run_is_refused_with_the_first_ones_process(tmp_path):
    root = RunRoot(tmp_path)
    with root.locked(), pytest.raises(RootInUse, match=r"Another run \(process \d+\) is using .*--root"), root.locked():
        pass
    with root.locked():
        pass


def test_lock_goes_with_a_killed_process(tmp_path):
    code = (
        "import os, signal; from pathlib import Path; from pipeline.run_root import RunRoot\n"
        f"with RunRoot(Path({str(tmp_path)!r})).locked(): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == -9
    with RunRoot(tmp_path).locked():
        pass


def test_root_belongs_to_one_data_set(tmp_path):
    root = RunRoot(tmp_path)
    root.claim("emoji")
    root.claim("emoji")
    with pytest.raises(ValueError, match=r"is that of emoji. Received: other.npz"):
        root.claim("other.npz")


def test_edited_schema_gets_another_path(tmp_path):
    root, schema = RunRoot(tmp_path), tmp_path / "mine.pbtxt"
    paths = []
    for text in ("a", "b", "a"):
        schema.write_text(text)
        paths.append(root.pinned_schema(schema))
    assert paths[0] == paths[2] != paths[1]
    assert Path(paths[1]).read_text() == "b"
