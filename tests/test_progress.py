import io

import pytest

from cmimh_tf import progress
from cmimh_tf.progress import ProgressBar, format_seconds, track


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_file_gets_whole_lines_and_the_last_state(monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    stream = io.StringIO()
    with ProgressBar(30, "hashing", "pairs", stream=stream, delay=0.0) as bar:
        for _ in range(3):
            bar.update(10)
    lines = stream.getvalue().splitlines()
    assert lines[-1].startswith("hashing: 30 of 30 pairs, ")
    assert lines[0].startswith("hashing: 10 of 30 pairs, ")
    assert "\r" not in stream.getvalue()
    assert len(lines) == len(set(lines)) == 3


def test_work_that_is_soon_done_shows_nothing():
    stream = io.StringIO()
    assert list(track(iter("abc"), 3, "reading", stream=stream)) == ["a", "b", "c"]
    assert stream.getvalue() == ""


def test_a_terminal_gets_one_line_that_is_erased():
    stream = Terminal()
    with ProgressBar(2, "reading", "files", stream=stream, delay=0.0) as bar:
        bar.update()
    assert "reading" in stream.getvalue()
    assert "\n" not in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (42, "42 s"), (130, "2 min 10 s"), (3599.6, "1 h 00 min"), (4000, "1 h 06 min")]
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text
