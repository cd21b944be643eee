"""What the commands have in common: flags to configurations, and errors as one sentence."""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from cmimh_tf import __main__ as cmimh_command
from cmimh_tf import command_line


def parse(*words):
    parser = argparse.ArgumentParser()
    command_line.add_config_flags(parser)
    return parser.parse_args(words)


def test_a_seed_by_set_counts_unless_there_is_a_flag():
    assert command_line.config_from_flags(parse()).seed == 0
    assert command_line.config_from_flags(parse("--set", "seed=7")).seed == 7
    assert command_line.config_from_flags(parse("--set", "seed=7", "--seed", "0")).seed == 0


def ending(raised, capsys, arguments=None, **options):
    def body(_):
        raise raised

    with pytest.raises(SystemExit) as exit_info:
        command_line.run(body, arguments or argparse.Namespace(), **options)
    return exit_info.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        ValueError("`x` must be 1. Received: 2."),
        OSError("`x` must be 1. Received: 2."),
        tf.errors.ResourceExhaustedError(None, None, "`x` must be 1. Received: 2.\n\t [[node x]]"),
    ],
)
def test_an_error_that_the_user_can_fix_is_one_sentence(error, capsys):
    assert ending(error, capsys) == (2, "error: `x` must be 1. Received: 2.\n")


def test_an_interrupted_command_promises_only_what_it_keeps(capsys):
    overwriting = argparse.Namespace(overwrite=True)
    assert ending(KeyboardInterrupt(), capsys) == (130, "stopped\n")
    _, resumed = ending(KeyboardInterrupt(), capsys, resumes=True)
    assert resumed == "stopped; run the same command to continue\n"
    _, overwritten = ending(KeyboardInterrupt(), capsys, overwriting, resumes=True)
    assert overwritten == "stopped; run the same command without --overwrite to continue\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train --data missing.npz --out x", "missing.npz does not exist. `data` must be"),
        ("train --data missing.csv --out x", "missing.csv does not exist."),
        ("train --data synthetic --out x --set loss.nonsense=1", "`loss.nonsense` is not a configuration key."),
        ("train --data synthetic --out x --bits 12", "`code_length` must be a positive multiple of 8."),
        ("evaluate --model missing --data synthetic", "`model` must be the folder of a finished run"),
        ("hash --model missing --data synthetic --out x.npz", "`model` must be the folder of a finished run"),
        ("nonsense", "unknown command 'nonsense'. Commands: train, evaluate"),
    ],
)
def test_bad_arguments_are_rejected_before_tensorflow_is_imported(words, message, tmp_path):
    script = (
        "import sys; sys.argv = ['cmimh', *sys.argv[1:]]; from cmimh_tf.__main__ import main\n"
        "try:\n    main()\n"
        "finally:\n    print('tensorflow' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, *words.split()], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert message in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout.strip() == "False"
    assert found.returncode != 0


def test_paths_must_not_be_empty(capsys):
    parser = argparse.ArgumentParser(prog="x")
    parser.add_argument("--data", type=command_line.not_empty)
    parser.add_argument("--out", type=command_line.path)
    given = parser.parse_args(["--data", "emoji", "--out", "runs/mine"])
    assert (given.data, given.out) == ("emoji", Path("runs/mine"))
    for flag in ("--data", "--out"):
        with pytest.raises(SystemExit, match="2"):
            parser.parse_args([flag, ""])
        assert capsys.readouterr().err.endswith(f"error: argument {flag}: must not be empty. Received: ''.\n")
    with pytest.raises(ValueError, match=r"`data` must be a path or a name\. Received: ''\."):
        command_line.check_data("")


@pytest.mark.parametrize(
    "words",
    [
        ["pipeline.run_local", "--data", ""],
        ["pipeline.run_local", "--root", ""],
        ["pipeline.run_kubeflow", "--root", "", "--data", "emoji", "--image", "x"],
        ["serving.push", "--model-base", "", "--model", "."],
        ["serving.push", "--model", "", "--model-base", "x"],
        ["serving.server.__main__", "--model-base", ""],
        ["serving.search.__main__", "--index", ""],
        ["serving.search.__main__", "--model-base", "", "--index", "x"],
        ["serving.client", "--out", "", "vectors", "a.npz"],
        ["cmimh_tf.features.__main__", "--out", "", "--data", "emoji"],
        ["cmimh_tf.features.__main__", "--data", "", "--out", "x"],
        ["cmimh_tf.train", "--data", "", "--out", "x"],
        ["cmimh_tf.train", "--out", "", "--data", "emoji"],
        ["cmimh_tf.hash", "--out", "", "--data", "emoji", "--model", "x"],
        ["tuner.search", "--out", "", "--data", "emoji"],
        ["cmimh_tf.evaluate", "--model", "", "--data", "emoji"],
        ["cmimh_tf.evaluate", "--data", "", "--model", "x"],
        ["cmimh_tf.baselines.__main__", "--data", ""],
        ["cmimh_tf.experiments.__main__", "--data", "", "main"],
        ["cmimh_tf.experiments.__main__", "--out", "", "--data", "emoji", "main"],
        ["cmimh_tf.index", "build", "--out", "", "--codes", "x"],
        ["cmimh_tf.index", "build", "--model", "", "--data", "emoji", "--out", "x"],
        ["cmimh_tf.index", "add", "--index", "", "--data", "emoji"],
        ["cmimh_tf.index", "add", "--data", "", "--index", "x"],
        ["cmimh_tf.index", "rehash", "--model", "", "--index", "x"],
        ["cmimh_tf.search.__main__", "--index", "", "--id", "1"],
        ["cmimh_tf.spark.__main__", "hash", "--data", "", "--model", "x", "--out", "x"],
        ["cmimh_tf.spark.__main__", "hash", "--out", "", "--data", "x", "--model", "x"],
        ["cmimh_tf.spark.__main__", "load", "--index", "", "--codes", "x"],
        ["cmimh_tf.data.__main__", "check", "--model", "", "emoji"],
    ],
    ids=" ".join,
)
def test_commands_refuse_empty_paths(words, capsys, monkeypatch, tmp_path):
    def fail(*_, **__):
        pytest.fail("the command ran")

    name, *flags = words
    module = importlib.import_module(name)
    monkeypatch.setattr(command_line, "run", fail)
    monkeypatch.setattr(module, "run_service", fail, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *flags])
    with pytest.raises(SystemExit, match="2"):
        module.main()
    flag = flags[flags.index("") - 1]
    assert f"error: argument {flag}: must not be empty. Received: ''." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_cmimh_lists_its_commands_and_names_itself_in_usage(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cmimh"])
    cmimh_command.main()
    assert "  train        learn codes from paired features" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["cmimh", "hash", "--help"])
    with pytest.raises(SystemExit):
        cmimh_command.main()
    assert capsys.readouterr().out.startswith("usage: cmimh hash")
