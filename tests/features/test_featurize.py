"""Pairs of files to shards of vectors: what they hold, what is kept of a run that was killed, and refusals."""

import argparse
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf import progress, train
from cmimh_tf.data import load_npz
from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.records import load_vectors
from cmimh_tf.data.sources import open_records
from cmimh_tf.features import __main__ as command
from cmimh_tf.features import describe_pictures
from cmimh_tf.features.compute import compute_vectors
from cmimh_tf.features.featurize import featurize
from cmimh_tf.features.shards import ShardFolder
from cmimh_tf.training import trainer

NUM_PAIRS = 70
PER_SHARD = 20
SPLITS = ["query", "train", "database", "database"]


def make_picture(row):
    return np.random.default_rng(row).integers(0, 256, (4, 4 + row % 3, 3), np.uint8)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """70 small pictures, named by tags, with official splits: shards of 18, 18, 17 and 17 pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "tags.txt").write_text("even\nodd\nlast\n")
    lines = ["image,text,labels,split"]
    for row in range(NUM_PAIRS):
        (folder / f"{row}.png").write_bytes(tf.io.encode_png(make_picture(row)).numpy())
        tags = ["even", "odd"][row % 2] + (" last" if row == NUM_PAIRS - 1 else "")
        lines.append(f"{row}.png,{tags},{'x|y' if row % 5 else 'x'},{SPLITS[row % 4]}")
    (folder / "pairs.csv").write_text("\n".join(lines))
    return folder


def write(table, out, data="pairs.csv", tags="tags.txt", **options):
    features = {"image_features": "descriptor", "text_features": f"tags:{table / tags}"}
    return featurize(open_records(str(table / data)), out, **{**features, "pairs_per_shard": PER_SHARD, **options})


@pytest.fixture(scope="module")
def shards(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("features") / "shards"
    assert write(table, folder) == NUM_PAIRS
    return folder


@pytest.fixture
def computed(monkeypatch):
    """The number of pairs of each call that computes vectors."""
    counts = []

    def counting(rows, *names):
        counts.append(len(rows))
        return compute_vectors(rows, *names)

    monkeypatch.setattr("cmimh_tf.features.featurize.compute_vectors", counting)
    return counts


def test_npz_has_vectors_labels_captions_and_splits_in_the_order_of_the_table(table, tmp_path):
    assert write(table, tmp_path / "a.npz") == NUM_PAIRS
    data = load_npz(tmp_path / "a.npz")
    assert data.ids.tolist() == [f"{row}.png" for row in range(NUM_PAIRS)]
    assert data.captions[-2:].tolist() == ["even", "odd last"]
    assert data.text[-2:].tolist() == [[1, 0, 0], [0, 1, 1]]
    assert data.classes.tolist() == ["x", "y"]
    assert data.labels[[0, 1]].tolist() == [[1, 0], [1, 1]]
    np.testing.assert_array_equal(np.flatnonzero(data.is_query), np.arange(0, NUM_PAIRS, 4))
    np.testing.assert_array_equal(np.flatnonzero(data.is_train), np.arange(1, NUM_PAIRS, 4))
    for row in (0, 7, 69):
        expected = describe_pictures(make_picture(row)[np.newaxis])
        np.testing.assert_allclose(data.image[row : row + 1], expected, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_shards_hold_what_the_npz_does_and_say_what_they_are(table, shards, tmp_path):
    write(table, tmp_path / "a.npz")
    of_npz, of_shards = load_npz(tmp_path / "a.npz"), load_vectors(open_records(str(shards)))
    for name in ("image", "text", "labels", "ids", "captions", "is_query", "is_train", "classes"):
        np.testing.assert_array_equal(getattr(of_npz, name), getattr(of_shards, name))
    names = [f"pairs-{number:05d}-of-00004.tfrecord" for number in range(4)]
    assert sorted(path.name for path in shards.glob("[!.]*")) == [*names, "pairs.json"]
    description = json.loads((shards / "pairs.json").read_text())
    assert description["image"] == {"features": "descriptor@1", "width": 572}
    assert (description["pairs"], description["shards"], description["labels"]) == (NUM_PAIRS, 4, 2)
    assert description["splits"] == {"query": 18, "train": 18, "database": 34}


@pytest.mark.parametrize("name", ["train", "database", "query"])
def test_folder_may_be_called_like_a_split(table, shards, tmp_path, name):
    assert write(table, tmp_path / name) == NUM_PAIRS
    assert open_records(str(tmp_path / name)).index().ids == open_records(str(shards)).index().ids


@pytest.mark.parametrize("first", ["database", "query"])
def test_shards_of_one_split_alone_are_finished(tmp_path, first):
    last = "query" if first == "database" else "database"
    rows = [{"id": f"{row}", "image": [row, 1], "text": [1], "split": last if row > 5 else first} for row in range(9)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    names = {"image_features": "descriptor", "text_features": "bag_of_words"}
    featurize(open_records(str(tmp_path / "a.jsonl")), tmp_path / "out", **names, pairs_per_shard=2)
    data = load_vectors(open_records(str(tmp_path / "out")))
    assert data.is_query.tolist() == [row["split"] == "query" for row in rows]


def test_official_training_set_is_what_the_training_command_trains_on(shards, tmp_path, monkeypatch):
    class Stop(Exception):
        pass

    def stop(pairs, *_):
        trained_on.extend(pairs.ids)
        raise Stop

    trained_on = []
    monkeypatch.setattr(trainer, "train_model", stop)
    flags = {"preset": "smoke", "bits": None, "epochs": None, "seed": 0, "set": []}
    sizes = {"queries": None, "train_pairs": None, "protocol": "all", "shuffle_pairs": False, "overwrite": False}
    with pytest.raises(Stop):
        train.train(argparse.Namespace(data=str(shards), out=tmp_path / "run", **flags, **sizes))
    assert sorted(trained_on) == sorted(f"{row}.png" for row in range(1, NUM_PAIRS, 4))


@pytest.mark.e2e
def test_killed_process_leaves_whole_shards_that_are_not_computed_again(table, shards, tmp_path, computed):
    code = f"""
import os, signal
from pathlib import Path
from cmimh_tf.data import open_records
from cmimh_tf.features import featurize as module

compute, calls = module.compute_vectors, []

def killed_at_the_third_shard(*arguments):
    calls.append(0)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return compute(*arguments)

module.compute_vectors = killed_at_the_third_shard
features = {{"image_features": "descriptor", "text_features": {f"tags:{table / 'tags.txt'}"!r}}}
reader, out = open_records({str(table / "pairs.csv")!r}), Path({str(tmp_path / "out")!r})
module.featurize(reader, out, pairs_per_shard=20, **features)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=600, check=False)
    assert result.returncode == -signal.SIGKILL, result.stderr
    finished = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("pairs-*")}
    assert sorted(finished) == ["pairs-00000-of-00004.tfrecord", "pairs-00001-of-00004.tfrecord"]
    with pytest.raises(DataError, match=r"all 4 shards must exist. Received: 2"):
        open_records(str(tmp_path / "out")).index()

    write(table, tmp_path / "out")
    assert computed == [17, 17]
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(shards))
    for path in shards.glob("pairs-*"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in finished} == finished


def test_npz_that_was_stopped_goes_on_too(table, tmp_path, monkeypatch):
    def stop_at_the_second_shard(rows, *names):
        calls.append(len(rows))
        if len(calls) == 2:
            raise RuntimeError("stopped here")
        return compute_vectors(rows, *names)

    calls = []
    monkeypatch.setattr("cmimh_tf.features.featurize.compute_vectors", stop_at_the_second_shard)
    with pytest.raises(Exception, match="stopped here"):
        write(table, tmp_path / "a.npz")
    assert not (tmp_path / "a.npz").exists()
    write(table, tmp_path / "a.npz")
    assert calls == [18, 18, 18, 17, 17]
    assert len(load_npz(tmp_path / "a.npz")) == NUM_PAIRS


def test_shards_of_other_features_or_data_are_never_reused(table, tmp_path, computed):
    (table / "others.txt").write_text("even\nodd\n")
    (table / "fewer.csv").write_text("".join((table / "pairs.csv").read_text().splitlines(keepends=True)[:60]))
    write(table, tmp_path / "out")
    write(table, tmp_path / "out")
    assert sum(computed) == NUM_PAIRS
    with pytest.raises(
        ValueError, match=r"`out` must be .* made from the same data and features. .*`text_features` 'tags:.*others"
    ):
        write(table, tmp_path / "out", tags="others.txt")
    with pytest.raises(ValueError, match=r"with `data` '\w+' instead of '\w+'. Use --overwrite"):
        write(table, tmp_path / "out", data="fewer.csv")
    write(table, tmp_path / "out", tags="others.txt", overwrite=True)
    assert sum(computed) == 2 * NUM_PAIRS
    assert load_vectors(open_records(str(tmp_path / "out"))).text.shape == (NUM_PAIRS, 2)


def test_shards_beside_an_npz_of_other_features_are_dropped(table, tmp_path):
    folder = tmp_path / "a.npz.shards"
    folder.mkdir()
    (folder / "pairs.json").write_text('{"made_from": {"data": "other"}}')
    (folder / "pairs-00000-of-00004.tfrecord").write_bytes(b"of other data")
    assert write(table, tmp_path / "a.npz") == NUM_PAIRS


def test_vectors_of_the_source_are_taken_as_they_are(tmp_path):
    rows = [{"id": f"{row}", "image": [row, 1.5], "text": [0.0, 0.0] if row == 3 else [1, row]} for row in range(9)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    names = {"image_features": "descriptor", "text_features": "bag_of_words"}
    featurize(open_records(str(tmp_path / "a.jsonl")), tmp_path / "a.npz", **names)
    data = load_npz(tmp_path / "a.npz")
    np.testing.assert_array_equal(data.image, [row["image"] for row in rows])
    np.testing.assert_allclose(data.text, [row["text"] for row in rows], atol=1e-30)
    assert data.is_query is data.is_train is data.labels is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_features": "bag_of_words"}, "`text_features` must not be bag_of_words here"),
        ({"image_features": "descriptr"}, "`image_features` must be one of descriptor, .* Did you mean descriptor"),
        ({"pairs_per_shard": 0}, "`pairs_per_shard` must be at least 1. Received: pairs_per_shard=0"),
    ],
)
def test_bad_options_are_refused_and_write_nothing(table, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        write(table, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_folder_of_something_else_is_refused(table, tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"mine")
    with pytest.raises(ValueError, match=r"`out` must be a new folder, or one made by this command. .*with photo.jpg"):
        write(table, tmp_path, overwrite=True)
    assert (tmp_path / "photo.jpg").read_bytes() == b"mine"
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]
    with pytest.raises(ValueError, match=r"`out` must be a folder, or end in .npz. Received: .*photo.jpg, a file"):
        write(table, tmp_path / "photo.jpg")


def test_npz_of_something_else_is_refused(table, tmp_path):
    (table / "head.csv").write_text("".join((table / "pairs.csv").read_text().splitlines(keepends=True)[:60]))
    out = tmp_path / "a.npz"
    np.savez(out, mine=np.zeros(3))
    refusal = r"`out` must be a new file, or one that this command made from the same data. Received: .*a\.npz\. Use"
    before = out.read_bytes()
    with pytest.raises(ValueError, match=refusal):
        write(table, out)
    assert out.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.npz"]
    assert write(table, out, overwrite=True) == NUM_PAIRS
    assert write(table, out) == NUM_PAIRS
    with pytest.raises(ValueError, match=refusal):
        write(table, out, data="head.csv")
    assert len(load_npz(out)) == NUM_PAIRS


def test_input_is_not_replaced(table, tmp_path, monkeypatch, capsys):
    write(table, tmp_path / "a.npz")
    before = (tmp_path / "a.npz").read_bytes()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["features", "--data", "a.npz", "--out", "./a.npz", "--overwrite"])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert capsys.readouterr().err == "error: `out` must not be the input. Received: a.npz.\n"
    assert (tmp_path / "a.npz").read_bytes() == before


def test_folder_in_use_is_refused(table, tmp_path):
    with (
        ShardFolder(tmp_path / "out").claimed({}, overwrite=False),
        pytest.raises(ValueError, match=r"`out` must not be in use. Received: .*out, which process \d+ is writing to"),
    ):
        write(table, tmp_path / "out")


def test_record_that_is_wrong_is_named_in_one_sentence(table, tmp_path):
    lines = [f"{table / '0.png'},even" if row != 30 else "missing.png,even" for row in range(40)]
    lines = [f"{row},{line}" for row, line in enumerate(lines)]
    (tmp_path / "pairs.csv").write_text("\n".join(["id,image,text", *lines]))
    with pytest.raises(DataError, match=r"^\S*pairs.csv, line 32: `image` must be a file .* \(No such file[^\[]*\).$"):
        write(table, tmp_path / "out", data=str(tmp_path / "pairs.csv"))


def test_disk_that_is_full_is_reported_in_one_sentence(table, tmp_path, monkeypatch, caplog):
    def write_nothing(self, record):
        raise tf.errors.ResourceExhaustedError(None, None, "out/.tmp-1; No space left on device")

    monkeypatch.setattr(tf.io.TFRecordWriter, "write", write_nothing)
    with pytest.raises(DataError, match=r"^out/.tmp-1; No space left on device$"):
        write(table, tmp_path / "out")
    assert "Traceback" not in caplog.text


def test_error_of_tensorflow_is_one_sentence_of_the_command(monkeypatch, capsys):
    def fail(*_, **__):
        raise tf.errors.PermissionDeniedError(None, None, "features; Permission denied")

    monkeypatch.setattr(command, "featurize", fail)
    monkeypatch.setattr(sys, "argv", ["features", "--data", "synthetic", "--out", "features"])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert capsys.readouterr().err.splitlines()[-1] == "error: features; Permission denied"


def test_record_with_another_width_is_named(tmp_path):
    rows = [{"id": f"{row}", "image": [1] * (3 if row == 5 else 2), "text": [1, row]} for row in range(9)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    names = {"image_features": "descriptor", "text_features": "bag_of_words"}
    with pytest.raises(DataError, match=r"line 6: must have vectors and labels of the same widths .*Received: .*3"):
        featurize(open_records(str(tmp_path / "a.jsonl")), tmp_path / "out", **names)


def test_progress_counts_the_pairs_of_all_workers(table, tmp_path, monkeypatch):
    class CountingBar(progress.ProgressBar):
        def close(self):
            counted.append((self.initial, self.n, self.total))
            super().close()

    counted = []
    monkeypatch.setattr("cmimh_tf.features.featurize.ProgressBar", CountingBar)
    write(table, tmp_path / "out")
    (tmp_path / "out" / "pairs-00002-of-00004.tfrecord").unlink()
    write(table, tmp_path / "out")
    # `close` may be called more than once.
    assert list(dict.fromkeys(counted)) == [(0, NUM_PAIRS, NUM_PAIRS), (NUM_PAIRS - 17, NUM_PAIRS, NUM_PAIRS)]
