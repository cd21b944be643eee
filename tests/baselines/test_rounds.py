"""The count of rounds: silent when quick, with the time left when not."""

import io

import pytest

from cmimh_tf.baselines import rounds


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when a test moves it."""
    now = [0.0]
    monkeypatch.setattr(rounds.time, "monotonic", lambda: now[0])
    return now


def run(stream, clock, seconds_a_round, num_rounds=4):
    seen = []
    for done in rounds.count_rounds(num_rounds, "PDH, round", stream):
        seen.append(done)
        clock[0] += seconds_a_round
    assert seen == list(range(num_rounds))
    return stream.getvalue()


def test_quick_loop_says_nothing(clock):
    assert run(io.StringIO(), clock, 0.5) == ""


def test_slow_loop_says_how_long_is_left(clock):
    assert run(io.StringIO(), clock, 20).splitlines() == [
        "PDH, round 1/4, 1 min 00 s left",
        "PDH, round 2/4, 40 s left",
        "PDH, round 3/4, 20 s left",
    ]


def test_log_files_get_a_line_every_quarter_of_a_minute(clock):
    assert len(run(io.StringIO(), clock, 4, num_rounds=9).splitlines()) == 2


def test_terminal_is_drawn_over_and_left_clean(clock):
    output = run(Terminal(), clock, 4)
    assert output.startswith("\rPDH, round 1/4, 12 s left\033[K\rPDH, round 2/4")
    assert output.endswith("\r\033[K")
    assert "\n" not in output
