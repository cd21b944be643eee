"""The whole pipeline as a user runs it: killed while it trains, resumed, pushed, and the pushed codes compared."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf import open_index
from cmimh_tf.data import make_splits, make_synthetic, save_npz

ROOT = Path(__file__).resolve().parents[2]
NUM_PAIRS = 240


def command(folder, *flags):
    script = str(ROOT / "pipeline" / "run_local.py")
    return [sys.executable, script, "--data", "pairs.npz", "--root", str(folder / "root"), "--preset", "smoke", *flags]


def environment():
    # Without PYTHONPATH: the script has to find its packages from a bare clone.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"}


def run(folder, *flags):
    return subprocess.run(
        command(folder, *flags), cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )


def kill_in_training(folder, *flags):
    """Kills the process group after the second epoch, and returns what it had said."""
    said = []
    with subprocess.Popen(
        command(folder, *flags),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        for line in process.stdout:
            said.append(line)
            if line.startswith("epoch 2/"):
                os.killpg(process.pid, signal.SIGKILL)
                break
    return "".join(said)


def outcomes(output):
    """{component: "run" or "cached"} from the lines of a run."""
    words = [line.split() for line in output.splitlines() if line.startswith("  ")]
    return {line[0]: line[1] for line in words if len(line) > 2 and line[1] in ("run", "cached")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pipeline")
    save_npz(path / "pairs.npz", make_synthetic(NUM_PAIRS, seed=1, image_dim=12, text_dim=8))
    return path


@pytest.fixture(scope="module")
def resumed(folder):
    """A run that was killed while it trained, and then run again."""
    said = kill_in_training(folder)
    assert outcomes(said)["Transform"] == "run", said
    assert "Trainer" not in outcomes(said)
    assert not (folder / "root" / "serving_model").exists()
    resumed = run(folder)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    return resumed


@pytest.mark.e2e
def test_killed_run_resumes_pushes_and_serves_the_trainers_codes(folder, resumed):
    reported = outcomes(resumed.stdout)
    assert [reported[name] for name in ("PairExampleGen", "StatisticsGen", "Transform", "Trainer")] == [
        "cached", "cached", "cached", "run"
    ]  # fmt: skip
    # It went on where it had been killed.
    assert "epoch 1/" not in resumed.stdout
    assert "epoch 5/5" in resumed.stdout
    assert resumed.stderr == ""
    for line in ("blessed: ", "model:  root/serving_model/cmimh/1", "report: root/", "image_to_text"):
        assert line in resumed.stdout
    compare_codes(folder)
    search_with_the_printed_command(folder, resumed.stdout)


def search_with_the_printed_command(folder, said):
    """The last line of a run is a command that finds the neighbours of a pair, in all pairs of the data."""
    printed = said.splitlines()[-1]
    assert printed.startswith("search: python -m cmimh_tf.search --index root/index --id ")
    arguments = printed.split()[2:]
    found = subprocess.run(
        [sys.executable, *arguments, "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(found.stdout)[0]["hits"]) == 10
    with open_index(folder / "root" / "index") as index:
        assert index.header.model.version == 1
        items = index.sample(NUM_PAIRS)
        results = index.search(ids=[item.id for item in items], find="texts").per_query
    assert len(items) == NUM_PAIRS

    def share_relevant(item, others):
        return np.mean([bool(set(item.metadata["label"]) & set(other.metadata["label"])) for other in others])

    found_share = np.mean([share_relevant(item, hits) for item, hits in zip(items, results, strict=True)])
    assert found_share > 1.2 * np.mean([share_relevant(item, items) for item in items])


def compare_codes(folder):
    """The pushed model, given raw vectors, must give the codes of the Trainer's model for transformed ones."""
    import tensorflow as tf

    from cmimh_tf.training.run_folder import load_model
    from pipeline.exported_model import hash_split

    (version,) = (folder / "root" / "serving_model" / "cmimh").iterdir()
    config = json.loads((version / "assets.extra" / "config.json").read_text())
    assert config["image_width"] == 12
    assert "image_to_text" in json.loads((version / "assets.extra" / "metrics.json").read_text())["map_at_1000"]
    artifacts = folder / "root" / "artifacts"
    (examples,) = (artifacts / "PairExampleGen" / "examples").iterdir()
    (transformed,) = (artifacts / "Transform" / "transformed_examples").iterdir()
    (model_run,) = (path.parent for path in (artifacts / "Trainer" / "model_run").glob("*/model.keras"))
    pushed = hash_split(version, str(examples), "query")
    assert len(pushed) == len(make_splits(NUM_PAIRS, 0).query)

    spec = {
        "image": tf.io.FixedLenFeature([12], tf.float32),
        "text": tf.io.FixedLenFeature([8], tf.float32),
        "position": tf.io.FixedLenFeature([], tf.int64),
    }
    files = [str(path) for path in (transformed / "Split-query").iterdir()]
    rows = [tf.io.parse_single_example(row, spec) for row in tf.data.TFRecordDataset(files, "GZIP")]
    rows.sort(key=lambda row: int(row["position"]))
    model = load_model(model_run)
    image, text = (np.stack([row[name].numpy() for row in rows]) for name in ("image", "text"))
    np.testing.assert_array_equal(pushed.image_codes, model.hash_images(image))
    np.testing.assert_array_equal(pushed.text_codes, model.hash_texts(text))
    with open_index(folder / "root" / "index") as index:
        indexed = index.get([str(row) for row in make_splits(NUM_PAIRS, 0).query])
    assert [item.codes["image"] for item in indexed] == [code.tobytes() for code in pushed.image_codes]
    assert [item.codes["text"] for item in indexed] == [code.tobytes() for code in pushed.text_codes]


def run_in_process(folder, monkeypatch, capfd, *flags):
    """The same command without a new process, which would import everything again."""
    from pipeline import run_local

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", command(folder, *flags)[1:])
    with pytest.raises(SystemExit) as exit_info:
        run_local.main()
    return exit_info.value.code, capfd.readouterr().out


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore")
def test_better_model_replaces_the_baseline_and_ruined_one_does_not(folder, resumed, monkeypatch, capfd):
    versions, indexes = folder / "root" / "serving_model" / "cmimh", folder / "root" / "index"
    published = (indexes / "1" / "current.json").stat().st_mtime_ns
    # All is cached, but a version that is gone must come back before it is said to be there.
    shutil.rmtree(versions / "1")
    code, said = run_in_process(folder, monkeypatch, capfd)
    assert (code, outcomes(said)["Trainer"]) == (0, "cached"), said
    assert [path.name for path in versions.iterdir()] == [path.name for path in indexes.iterdir()] == ["1"]
    assert (indexes / "1" / "current.json").stat().st_mtime_ns == published

    code, said = run_in_process(folder, monkeypatch, capfd, "--epochs", "20")
    assert code == 0, said
    assert "the blessed model's" in said
    assert outcomes(said)["Transform"] == "cached"
    assert sorted(path.name for path in versions.iterdir()) == ["1", "2"]

    ruin = ("--set", "loss.mutual_information_weight=0", "--set", "optimizer.encoder_rate=0")
    code, said = run_in_process(folder, monkeypatch, capfd, *ruin)
    assert code == 3, said
    assert "not blessed: " in said
    assert "model:  not pushed" in said
    assert "search: " not in said
    for folder_of_versions in (versions, indexes):
        assert sorted(path.name for path in folder_of_versions.iterdir()) == ["1", "2"]


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore")
def test_tuned_run_trains_with_the_best_weights_found(folder, resumed, monkeypatch, capfd):
    code, said = run_in_process(folder, monkeypatch, capfd, "--tune", "2", "--set", "loss.balance_weight=0.2")
    assert code in (0, 3), said  # Whether it beats the blessed model is not the question here.
    reported = outcomes(said)
    assert (reported["Transform"], reported["Tuner"], reported["Trainer"]) == ("cached", "run", "run")
    (search,) = (folder / "root" / "tuning").iterdir()
    result = json.loads((search / "result.json").read_text())
    assert (result["objective"], result["trials"]) == ("val_map", 2)
    assert f"best val_map: {result['best_value']:.4f}" in said
    newest = max((folder / "root" / "artifacts" / "Trainer" / "model_run").iterdir(), key=lambda path: int(path.name))
    trained = json.loads((newest / "config.json").read_text())["config"]
    assert {f"loss.{name}": value for name, value in trained["loss"].items()}.items() >= result["best"].items()

    code, said = run_in_process(folder, monkeypatch, capfd, "--tune", "2", "--set", "loss.balance_weight=0.2")
    assert outcomes(said)["Tuner"] == "cached"
