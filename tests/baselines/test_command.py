"""`python -m cmimh_tf.baselines`: one row a method, by the flags that were given."""

import argparse

import numpy as np
import pytest

from cmimh_tf.baselines.__main__ import main, measure
from cmimh_tf.data.synthetic import make_synthetic


@pytest.fixture
def data_file(tmp_path):
    data = make_synthetic(400, seed=0)
    np.savez(tmp_path / "pairs.npz", image=data.image, text=data.text, labels=data.labels)
    return tmp_path / "pairs.npz"


def rows(capsys, data, methods, ridge=None):
    measure(argparse.Namespace(data=str(data), bits=16, seed=0, methods=methods, ridge=ridge, protocol="all"))
    heading, tasks, *lines = capsys.readouterr().out.splitlines()
    names = [line[:20].strip() for line in lines]
    cells = [[float(cell) for cell in line[20:].split()] for line in lines]
    return heading, tasks.split(), dict(zip(names, cells, strict=True))


def test_rows_hold_four_tasks_and_the_seconds(capsys, data_file):
    heading, tasks, measured = rows(capsys, data_file, ["ACQ", "Random", "CCA cosine"])
    assert heading == "16 bits, mAP@1000 in %"
    assert tasks[:4] == ["image_to_text", "text_to_image", "image_to_image", "text_to_text"]
    assert list(measured) == ["ACQ", "Random", "CCA cosine"]
    assert all(len(cells) == 5 for cells in measured.values())
    across = {name: np.mean(cells[:2]) for name, cells in measured.items()}
    assert across["Random"] < 25 < across["ACQ"] < across["CCA cosine"]


def test_ridge_reaches_those_that_have_one(capsys, data_file):
    given = rows(capsys, data_file, ["CVH", "Random"], ridge=30.0)[2]
    default = rows(capsys, data_file, ["CVH", "Random"])[2]
    assert given["Random"][:4] == default["Random"][:4]
    assert given["CVH"][:4] != default["CVH"][:4]


def test_without_labels_pairs_are_looked_for(capsys, data_file):
    arrays = dict(np.load(data_file))
    np.savez(data_file, image=arrays["image"], text=arrays["text"])
    heading, tasks, measured = rows(capsys, data_file, ["CVH", "CCA cosine"])
    assert heading == "16 bits, RecallOne@10 in %"
    assert tasks[:2] == ["image_to_text", "text_to_image"]
    assert list(measured) == ["CVH"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--methods", "PCA"], "invalid choice: 'PCA' (choose from 'CVH', 'PDH'"),
        (["--ridge", "some"], "argument --ridge: must be a positive number or `auto`. Received: some"),
        (["--ridge", "-1"], "argument --ridge: must be a positive number or `auto`. Received: -1"),
    ],
)
def test_wrong_flags_are_rejected(monkeypatch, capsys, flags, message):
    monkeypatch.setattr("sys.argv", ["baselines", "--data", "synthetic", *flags])
    with pytest.raises(SystemExit):
        main()
    assert message in capsys.readouterr().err


def test_wrong_code_length_is_rejected_before_the_data_is_read():
    arguments = argparse.Namespace(data="missing.npz", bits=12, seed=0, methods=["CVH"], ridge=None, protocol="all")
    with pytest.raises(ValueError, match=r"positive multiple of 8. Received: code_length=12"):
        measure(arguments)
