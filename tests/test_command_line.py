"""What the commands share: flags to configurations, and endings as one sentence."""

import argparse

import pytest
import tensorflow as tf

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
def test_what_a_user_can_cure_is_one_sentence(error, capsys):
    assert ending(error, capsys) == (2, "error: `x` must be 1. Received: 2.\n")


def test_an_interrupted_command_promises_only_what_it_keeps(capsys):
    overwriting = argparse.Namespace(overwrite=True)
    assert ending(KeyboardInterrupt(), capsys) == (130, "stopped\n")
    _, resumed = ending(KeyboardInterrupt(), capsys, resumes=True)
    assert resumed == "stopped; the same command goes on where it was\n"
    _, overwritten = ending(KeyboardInterrupt(), capsys, overwriting, resumes=True)
    assert overwritten == "stopped; the same command without --overwrite goes on where it was\n"
