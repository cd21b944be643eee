import io
import time

from cmimh_tf.features.progress import PairProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(monkeypatch, stream, steps):
    clock = iter([0.0, *[second for second, _ in steps if second is not None]])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    progress = PairProgress(100, stream)
    for second, count in steps:
        progress.skip(count) if second is None else progress.add(count)
    return stream.getvalue()


def test_time_left_is_from_what_was_computed_now(monkeypatch):
    # 40 pairs of an earlier run, then 20 in 20 seconds: 40 more take 40.
    assert told(monkeypatch, io.StringIO(), [(None, 40), (20.0, 20)]) == "features of 60 of 100 pairs, 40 s left\n"


def test_file_gets_a_line_every_few_seconds(monkeypatch):
    lines = told(monkeypatch, io.StringIO(), [(1.0, 10), (9.0, 10), (11.0, 10), (12.0, 10), (21.5, 10)])
    assert [line.split()[2] for line in lines.splitlines()] == ["30", "50"]


def test_terminal_has_one_line_that_moves(monkeypatch):
    shown = told(monkeypatch, Terminal(), [(1.0, 50), (2.0, 50)])
    assert shown.count("\r") == 2
    assert shown.endswith("features of 100 of 100 pairs, 0 s left\033[K\n")
