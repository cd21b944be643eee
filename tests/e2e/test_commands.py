"""The three commands as a user runs them, in their own processes."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from cmimh_tf.data.npz import save_npz
from cmimh_tf.data.synthetic import make_synthetic

pytestmark = pytest.mark.e2e


def run(module, *arguments):
    command = [sys.executable, "-m", f"cmimh_tf.{module}", *map(str, arguments)]
    # The command itself must keep TensorFlow quiet, whatever the tests run under.
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def data(folder):
    save_npz(folder / "pairs.npz", make_synthetic(400, seed=0))
    return folder / "pairs.npz"


@pytest.fixture(scope="module")
def trained(folder, data):
    result = run("train", "--data", data, "--preset", "smoke", "--seed", 1, "--out", folder / "run")
    assert result.returncode == 0, result.stderr
    return folder / "run", result


def test_train_writes_what_it_promises(trained):
    path, result = trained
    metrics = json.loads((path / "metrics.json").read_text())
    assert set(metrics["map_at_1000"]) == {"image_to_text", "text_to_image", "image_to_image", "text_to_text"}
    assert metrics["map_at_1000"]["image_to_text"] > metrics["chance"] + 0.1
    assert set(metrics["code_statistics"]["image"]) >= {"correlation_mse", "bit_balance", "saturated_share"}
    assert json.loads((path / "config.json").read_text())["config"]["seed"] == 1
    assert (path / "history.csv").read_text().startswith("epoch,")
    assert list((path / "tensorboard").rglob("events*"))
    for word in ("epoch 5/5", "L_rec", "I_JS", "D_SKL", "L_ind", "L_bal", "mAP@50", "image_to_text", "chance"):
        assert word in result.stdout
    assert result.stderr == ""


def test_the_same_command_again_does_not_train_and_measures_the_same(trained, folder, data):
    path, _ = trained
    before = json.loads((path / "metrics.json").read_text())
    result = run("train", "--data", data, "--preset", "smoke", "--seed", 1, "--out", path)
    assert "finished" in result.stdout
    assert "epoch 1/5" not in result.stdout
    assert json.loads((path / "metrics.json").read_text()) == before


def test_evaluate_on_the_trainings_own_file_measures_the_queries_it_held_out(trained, folder, data):
    path, _ = trained
    result = run("evaluate", "--model", path, "--data", data, "--json", folder / "again.json")
    assert result.returncode == 0, result.stderr
    again, before = (json.loads(file.read_text()) for file in (folder / "again.json", path / "metrics.json"))
    assert again == {key: value for key, value in before.items() if key in again}
    assert "map_at_1000" in again


def test_evaluate_keeps_to_the_number_of_queries_that_was_trained_with(folder, data):
    flags = ("--preset", "smoke", "--epochs", 1, "--queries", 13, "--out", folder / "few")
    result = run("train", "--data", data, *flags)
    assert result.returncode == 0, result.stderr
    result = run("evaluate", "--model", folder / "few", "--data", data, "--json", folder / "few.json")
    assert result.returncode == 0, result.stderr
    assert json.loads((folder / "few.json").read_text())["num_queries"] == 13


def test_evaluate_and_hash_on_data_that_was_not_there(trained, folder):
    path, _ = trained
    # The same world (seed), other pairs; no labels.
    new = make_synthetic(460, seed=0).take(np.arange(400, 460))
    save_npz(folder / "new.npz", type(new)(image=new.image, text=new.text, ids=np.arange(60)))
    flags = ("--rerank", "asymmetric", "--json", folder / "new.json")
    result = run("evaluate", "--model", path, "--data", folder / "new.npz", *flags)
    assert result.returncode == 0, result.stderr
    assert "no labels" in result.stdout
    measured = json.loads((folder / "new.json").read_text())
    assert measured.keys() >= {"recall_one_at_10", "asymmetric"}
    assert "recall_one_at_10" in measured["asymmetric"]

    result = run("hash", "--model", path, "--data", folder / "new.npz", "--out", folder / "codes.npz")
    assert result.returncode == 0, result.stderr
    codes = np.load(folder / "codes.npz")
    assert codes["image_codes"].shape == codes["text_codes"].shape == (60, 2)
    assert codes["image_codes"].dtype == np.uint8
    assert codes["ids"].tolist() == [str(row) for row in range(60)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "missing.npz", "--out", "x"], "missing.npz"),
        (["--data", "{data}", "--out", "x", "--bits", "12"], "`code_length` must be a positive multiple of 8"),
        (["--data", "{data}", "--out", "x", "--set", "loss.balance=1"], "Nearest: loss.balance_weight"),
        (["--data", "{data}", "--out", "x", "--queries", "400"], "`num_queries`"),
        (
            ["--data", "{data}", "--out", "{run}", "--preset", "smoke", "--seed", "2"],
            "holds another run: `config.seed`",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(trained, data, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    filled = [argument.format(data=data, run=trained[0]) for argument in arguments]
    result = run("train", *filled)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["train", "evaluate", "hash"])
def test_help_teaches_without_loading_tensorflow(module):
    code = (
        f"import sys, runpy; sys.argv = ['{module}', '--help']\n"
        f"try: runpy.run_module('cmimh_tf.{module}', run_name='__main__')\n"
        "except SystemExit: print('LOADED', 'tensorflow' in sys.modules, 'keras' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert "example" in result.stdout
    assert "LOADED False False" in result.stdout


def test_a_training_that_cannot_start_leaves_the_folder_to_the_corrected_command(tmp_path):
    pairs = make_synthetic(60, seed=0)
    save_npz(tmp_path / "pairs.npz", pairs)
    save_npz(tmp_path / "constant.npz", dataclasses.replace(pairs, image=np.ones_like(pairs.image)))
    flags = ["--preset", "smoke", "--epochs", 1, "--out", tmp_path / "run"]
    too_few = run("train", "--data", tmp_path / "pairs.npz", "--queries", 59, *flags)
    assert too_few.returncode == 2
    assert "`train` must have at least 2 pairs to train on. Received: 1." in too_few.stderr
    constant = run("train", "--data", tmp_path / "constant.npz", *flags)
    assert constant.returncode == 2
    assert "must vary" in constant.stderr
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {".lock"}
    assert run("train", "--data", tmp_path / "pairs.npz", *flags).returncode == 0


def test_labels_that_are_all_zero_are_no_labels(tmp_path):
    pairs = make_synthetic(60, seed=0)
    save_npz(tmp_path / "pairs.npz", dataclasses.replace(pairs, labels=np.zeros_like(pairs.labels)))
    flags = ["--preset", "smoke", "--epochs", 1, "--out", tmp_path / "run"]
    result = run("train", "--data", tmp_path / "pairs.npz", *flags)
    assert result.returncode == 0
    assert "are 0: it is treated as data without labels" in result.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert not metrics["labels"]
    assert "map" not in metrics


def test_hash_replaces_codes_and_nothing_else(trained, data, tmp_path):
    copy = tmp_path / "pairs.npz"
    copy.write_bytes(data.read_bytes())
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "empty.npz").touch()
    for out in (copy, trained[0] / "model.keras", tmp_path / "array.npy", tmp_path / "empty.npz"):
        before = out.read_bytes()
        result = run("hash", "--model", trained[0], "--data", copy, "--out", out)
        assert result.returncode == 2
        assert f"Received: {out}, which holds something else." in result.stderr
        assert out.read_bytes() == before
    for _ in range(2):
        assert run("hash", "--model", trained[0], "--data", copy, "--out", tmp_path / "codes.npz").returncode == 0
