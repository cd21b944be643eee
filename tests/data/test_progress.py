"""Progress is shown for work that takes long, and only then."""

import pytest

from cmimh_tf.data import progress


def test_progress_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # One second a row: silent for two seconds, then a line at once and every ten seconds.
    seconds = iter(range(100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(seconds)))
    assert list(progress.with_progress(20, "drawing")) == list(range(20))
    assert capsys.readouterr().err.splitlines() == [
        "drawing: 1 of 20, 38 s left ",
        "drawing: 11 of 20, 10 s left ",
        "drawing: 20 of 20, done    ",
    ]


def test_quick_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.with_progress(3, "drawing")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
