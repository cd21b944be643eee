"""The command as a user runs it: a chief with two workers, killed and resumed; its flags; and the pairs it uses."""

import argparse
import csv
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data import make_synthetic, save_npz
from cmimh_tf.overrides import override, parse_overrides
from tuner import weight_tuner
from tuner.results import SearchFolder
from tuner.search import WeightSearch, main
from tuner.search import run as run_search

ROOT = Path(__file__).resolve().parents[2]


def command(folder, *flags):
    fixed = ["--data", str(folder / "pairs.npz"), "--preset", "smoke", "--out", str(folder / "search")]
    return [sys.executable, "-m", "tuner.search", *fixed, *flags]


def run(folder, monkeypatch, capsys, *flags):
    """The same command in this process, which has imported TensorFlow already: (exit status, output, errors)."""
    monkeypatch.setattr(sys, "argv", command(folder, *flags)[2:])
    with pytest.raises(SystemExit) as exit_info:
        main()
    return exit_info.value.code, *capsys.readouterr()


def members(folder):
    """Process ids of the search's chief and workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(folder / "search").encode() in words:
                found.append(int(entry.name))
    return found


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore:.*is deprecated, (use|get):DeprecationWarning")
def test_two_workers_killed_and_resumed(tmp_path, monkeypatch, capsys):
    save_npz(tmp_path / "pairs.npz", make_synthetic(240, seed=0, image_dim=12, text_dim=8))
    flags = ("--trials", "3", "--algorithm", "random", "--epochs", "3")
    trials = tmp_path / "search" / "trials"
    with subprocess.Popen(
        command(tmp_path, *flags, "--workers", "2"), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        # Two lines say what is searched, one is the table's head; then the first trial has ended.
        said = [process.stdout.readline() for _ in range(4)]
        assert said[3].split()[0] in ("0", "1"), said
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 300
    while members(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = {
        path: path.stat().st_mtime_ns
        for path in trials.glob("trial_*/trial.json")
        if json.loads(path.read_text())["status"] == "COMPLETED"
    }
    assert done
    assert not (tmp_path / "search" / "result.json").exists()

    status, output, errors = run(tmp_path, monkeypatch, capsys, *flags)
    assert (status, errors) == (0, ""), output
    assert {path: path.stat().st_mtime_ns for path in done} == done
    rows = list(csv.DictReader(io.StringIO((tmp_path / "search" / "trials.csv").read_text())))
    assert [row["status"] for row in rows] == ["completed"] * 3
    assert (tmp_path / "search" / "report.html").read_text().count("<img") == 5
    best = parse_overrides([f"@{tmp_path / 'search' / 'best.json'}"])
    assert override(get_preset("smoke"), best).loss.balance_weight == best["loss.balance_weight"]

    _, output, _ = run(tmp_path, monkeypatch, capsys, *flags)
    assert "is already finished" in output
    assert "best val_map: " in output
    status, _, errors = run(tmp_path, monkeypatch, capsys, *flags, "--objective", "pair_score")
    assert status == 2
    assert "holds another search: `objective` is 'val_map' there" in errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--trials", "0"], "error: `trials` must be at least 1."),
        (["--algorithm", "grid"], "error: `weights` must name one or two weights for a grid"),
        (
            ["--algorithm", "hyperband", "--tune-also", "epochs", "--epochs", "9"],
            "error: `algorithm` must not be hyperband if epochs",
        ),
    ],
)
def test_refusals(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["search", "--data", "synthetic", "--out", str(tmp_path / "new"), *flags])
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 2
    assert capsys.readouterr().err.startswith(message)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("module", ["search", "criteria_agreement"])
def test_help_does_not_import_tensorflow(module):
    code = f"import sys, tuner.{module}; print('tensorflow' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert shown.stdout == "False\n"


def search_flags(data, out):
    return argparse.Namespace(
        data=str(data), out=out, preset="smoke", bits=None, epochs=None, seed=None, set=[], trials=3, folds=1,
        trial_share=0.3, algorithm="random", objective=None, weights=None, tune_also=[], grid_points=5, queries=None,
        train_pairs=None, protocol="all", workers=1,
    )  # fmt: skip


@pytest.mark.parametrize("member", ["chief", "worker0"])
def test_a_member_on_another_machine_is_refused_in_the_folder_of_another_search(member, tmp_path, monkeypatch):
    save_npz(tmp_path / "pairs.npz", make_synthetic(60, seed=0, image_dim=6, text_dim=5))
    flags = search_flags(tmp_path / "pairs.npz", tmp_path / "search")
    folder = SearchFolder(tmp_path / "search")
    folder.claim(WeightSearch.from_flags(flags, folder).describe())
    monkeypatch.setenv("KERASTUNER_ORACLE_IP", "127.0.0.1")
    monkeypatch.setenv("KERASTUNER_TUNER_ID", member)
    ran = []
    monkeypatch.setattr(
        weight_tuner, "make_tuner", lambda search, _: SimpleNamespace(search=lambda: ran.append(search))
    )
    assert run_search(flags) == 0
    assert len(ran) == 1
    flags.objective = "pair_score"
    with pytest.raises(ValueError, match=r"holds another search: `objective` is 'val_map' there"):
        run_search(flags)
    flags.objective = None
    if member == "chief":
        with folder.locked(), pytest.raises(ValueError, match=r"where a search is running"):
            run_search(flags)
    assert len(ran) == 1


def test_an_official_training_set_is_what_is_trained_on(tmp_path):
    rows = np.arange(60)
    marks = {"is_query": rows % 10 == 3, "is_train": rows % 3 == 1}
    marks["is_train"] &= ~marks["is_query"]
    data = make_synthetic(60, seed=0, image_dim=6, text_dim=5)
    save_npz(tmp_path / "pairs.npz", dataclasses.replace(data, ids=rows.astype(str), **marks))
    search = WeightSearch.from_flags(search_flags(tmp_path / "pairs.npz", tmp_path), SearchFolder(tmp_path / "search"))
    searched = search.pool.ids.astype(int)
    assert sorted(searched[: search.num_train]) == np.flatnonzero(marks["is_train"]).tolist()
    assert sorted(searched) == np.flatnonzero(~marks["is_query"]).tolist()


def test_too_few_pairs_for_the_folds_do_not_claim_the_folder(tmp_path, monkeypatch, capsys):
    save_npz(tmp_path / "pairs.npz", make_synthetic(60, seed=0, image_dim=12, text_dim=8))
    status, _, errors = run(tmp_path, monkeypatch, capsys, "--folds", "0", "--trials", "1")
    assert status == 2
    assert "`folds` must be at least 1" in errors
    assert not [path for path in (tmp_path / "search").glob("*") if path.name != ".lock"]
