"""What is shown: lines without a terminal, a moving line on one."""

import io

from cmimh_tf.experiments.screen import Screen


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_without_a_terminal(make_cell, tmp_path):
    stream = io.StringIO()
    screen = Screen(stream=stream)
    screen.begin(12, 3)
    screen.started(make_cell())
    screen.redraw([(make_cell(), 0.0, tmp_path / "no.log")], 60.0)
    screen.ended(make_cell(), 5.0, None, 130.0)
    screen.ended(make_cell("ACQ"), 5.0, "ValueError: no", 0.0)
    assert stream.getvalue().splitlines() == [
        "12 cells, 3 of them measured before",
        "started: CVH, 16 bits, seed 0",
        "[ 4/12] CVH, 16 bits, seed 0: done in 5 s; about 2 min 10 s left",
        "[ 5/12] ACQ, 16 bits, seed 0: FAILED, ValueError: no; about 0 s left",
    ]


def test_terminal_shows_the_epoch_of_what_runs(make_cell, tmp_path, monkeypatch):
    monkeypatch.setattr("cmimh_tf.experiments.screen.time.monotonic", lambda: 100.0)
    log = tmp_path / "cell.log"
    log.write_text("epoch  1/40 2 s left  objective 3\nepoch  2/40 1 s left  objective 2\n")
    stream = Terminal()
    screen = Screen({make_cell("CMIMH"): "CMIMH (λ1 = 4)"}, stream)
    screen.begin(2, 0)
    screen.redraw([(make_cell("CMIMH"), 58.0, log)], 60.0)
    assert "0/2, about 1 min 00 s left | CMIMH (λ1 = 4) (epoch 2/40) 42 s" in stream.getvalue()
