"""Models, checkpoints and exports of version 0.1. The archive was made by that version, with `--data synthetic`."""

import csv
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import cmimh_tf.train as train_command
from cmimh_tf import load_model

ARCHIVE = Path(__file__).parent / "version_0_1.tar.gz"
TRAINING = [
    "--data", "synthetic", "--preset", "smoke", "--epochs", "8", "--bits", "8", "--set", "network.hidden_units=[8]",
    "--set", "network.critic_units=[4]", "--set", "network.critic_embedding_units=4",
]  # fmt: skip


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("version_0_1")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def expected(old):
    return dict(np.load(old / "codes.npz"))


def test_model_gives_the_same_codes(old, expected):
    model = load_model(old / "run")
    np.testing.assert_array_equal(model.hash_images(expected["image"]), expected["image_codes"])
    np.testing.assert_array_equal(model.hash_texts(expected["text"]), expected["text_codes"])


def test_export_gives_the_same_codes(old, expected):
    signatures = tf.saved_model.load(str(old / "export" / "1")).signatures
    for name in ("image", "text"):
        found = signatures[f"hash_{name}"](tf.constant(expected[name]))["code_bytes"].numpy()
        assert found.tolist() == [row.tobytes() for row in expected[f"{name}_codes"]]


def test_killed_training_continues(old, monkeypatch):
    run = old / "killed"
    before = read_history(run)
    monkeypatch.setattr("sys.argv", ["train", *TRAINING, "--out", str(run)])
    with pytest.raises(SystemExit) as ended:
        train_command.main()
    assert ended.value.code == 0
    after = read_history(run)
    assert [row["epoch"] for row in after] == [str(epoch) for epoch in range(1, 9)]
    # The epochs before the kill were not trained again. Two columns have other names now.
    assert len(before) == 4
    for old_row, row in zip(before, after, strict=False):
        assert float(row["reconstruction"]) == float(old_row["reconstruction"])
        assert float(row["loss"]) == float(old_row["objective"])
        assert float(row["independence"]) == float(old_row["total_correlation"])
    assert float(after[4]["loss"]) < float(after[0]["loss"])
    assert load_model(run).config.code_length == 8


def read_history(run):
    with (run / "history.csv").open(newline="") as file:
        return list(csv.DictReader(file))
