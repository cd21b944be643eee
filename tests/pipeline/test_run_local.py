"""The command line: quick help, and refusals before anything runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(folder, *flags):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, str(ROOT / "pipeline" / "run_local.py"), *flags],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_help_works_from_any_folder(tmp_path):
    shown = run(tmp_path, "--help")
    assert shown.returncode == 0
    assert "--no-cache COMPONENT" in shown.stdout
    assert shown.stderr == ""


def test_help_does_not_import_tensorflow():
    code = "import sys, pipeline.run_local; print('tensorflow' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data", "no.npz"], "error: `data` must be an .npz, a table (.csv, .jsonl, .parquet), "),
        (["--image-features", "efficientnet"], "error: `image_features` must be one of descriptor, "),
        (["--text-features", "tags:no.txt"], "error: `features` must name a file that exists. Received: no.txt."),
        (["--data", "pairs.npz", "--bits", "12"], "error: `code_length` must be a positive multiple of 8"),
        (["--tune", "0"], "error: `tune` must be at least 1. Received: tune=0."),
    ],
)
def test_refusal_is_one_sentence_and_leaves_nothing(tmp_path, flags, message):
    refused = run(tmp_path, *flags)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(message)
    assert refused.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
