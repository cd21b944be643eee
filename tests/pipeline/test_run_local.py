"""The command line: quick help, and refusals before anything runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cmimh_tf.config import get_preset
from pipeline.create_pipeline import PipelineOptions, create_pipeline
from pipeline.run_local import absolute_spec, components_of, main, make_parser, uncached_components

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


@pytest.mark.parametrize("flags", [["--data", "no.csv"], ["--set", "nonsense=1"], ["--from", "Trianer"]])
def test_arguments_are_checked_before_tensorflow_is_imported(flags):
    code = (
        "import sys; from pipeline.run_local import check_arguments, make_parser\n"
        f"try: check_arguments(make_parser().parse_args({flags!r}))\n"
        "except (ValueError, OSError): print('tensorflow' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data", "no.npz"], "no.npz does not exist. `data` must be an .npz, a table (.csv, .jsonl, .parquet), "),
        (["--image-features", "efficientnet"], "error: `image_features` must be one of descriptor, "),
        (["--text-features", "tags:no.txt"], "error: `features` must name a file that exists. Received: no.txt."),
        (["--data", "pairs.npz", "--bits", "12"], "error: `code_length` must be a positive multiple of 8"),
        (["--tune", "0"], "error: `--tune` must be at least 1. Received: 0."),
        (["--set", "nonsense=1"], "error: `nonsense` is not a configuration key."),
        (["--no-cache", "Trianer"], "error: `--no-cache` must name one of PairExampleGen, "),
        (["--from", "Tuner"], "error: `--from` must name one of PairExampleGen, "),
        (["--schema", "no.pbtxt"], "error: `--schema` must name a file that exists. Received: no.pbtxt."),
    ],
)
def test_refusal_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run_local.py", *flags])
    with pytest.raises(SystemExit) as exit_info:
        main()
    output, errors = capsys.readouterr()
    assert (exit_info.value.code, output) == (2, "")
    assert message in errors.partition("\n")[0]
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_flags_of_earlier_versions_still_work():
    arguments = make_parser().parse_args(["--least-score", "40", "--most-drop", "2", "--vocabulary", "9"])
    assert (arguments.min_score, arguments.max_drop, arguments.vocabulary_size) == (40.0, 2.0, 9)
    assert "--least-score" not in make_parser().format_help()
    assert make_parser().parse_args([]).max_drop == 0.5


def test_components_are_those_of_the_pipeline():
    arguments = make_parser().parse_args(["--tune", "2"])
    options = PipelineOptions("emoji", get_preset("smoke"), tune_trials=2, schema_file="schema.pbtxt")
    pipeline = create_pipeline("test", "root", "serving", options, index_directory="index")
    assert components_of(arguments) == [component.id for component in pipeline.components]
    assert "Tuner" not in components_of(make_parser().parse_args([]))


def test_later_components_run_again():
    def uncached(*flags):
        return uncached_components(make_parser().parse_args(flags))

    assert uncached() == {"Pusher", "IndexBuilder"}
    assert uncached("--no-cache", "Transform") == {"Transform", "Pusher", "IndexBuilder"}
    later = {"RetrievalEvaluator", "SavedModelCheck", "Pusher", "IndexBuilder"}
    assert uncached("--from", "RetrievalEvaluator") == later


@pytest.mark.parametrize(
    ("spec", "kept"),
    [("emoji", True), ("nuswide/sift_20000", True), ("tfds:coco_captions", True), ("pairs.csv", False), ("a/b", False)],
)
def test_names_stay_and_paths_become_absolute(spec, kept):
    assert absolute_spec(spec) == (spec if kept else str(Path.cwd() / spec))
