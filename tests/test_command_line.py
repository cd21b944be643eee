"""What the commands have in common: flags to configurations, and errors as one sentence."""

import argparse
import subprocess
import sys

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


def test_cmimh_lists_its_commands_and_names_itself_in_usage(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cmimh"])
    cmimh_command.main()
    assert "  train        learn codes from paired features" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["cmimh", "hash", "--help"])
    with pytest.raises(SystemExit):
        cmimh_command.main()
    assert capsys.readouterr().out.startswith("usage: cmimh hash")
