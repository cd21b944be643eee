"""Versions appear whole, in order, and once."""

import os
import time

import pytest
from tfx.components.pusher import executor as tfx_executor
from tfx.types import standard_artifacts
from tfx.utils import json_utils

from pipeline.components import pusher
from pipeline.components.pusher import AtomicPusherExecutor, push


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model" / "Format-Serving"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables" / "v").write_bytes(b"1")
    return folder


@pytest.fixture
def metrics(tmp_path):
    file = tmp_path / "blessing" / "metrics.json"
    file.parent.mkdir()
    file.write_text('{"map": 1}')
    return file


def test_versions_count_up_when_the_model_changes(model, metrics, tmp_path):
    base = tmp_path / "serving"
    assert push(model, base, [metrics]).name == "1"
    assert push(model, base, [metrics]).name == "1"
    (model / "variables" / "v").write_bytes(b"2")
    assert push(model, base, [metrics]).name == "2"
    assert (base / "2" / "variables" / "v").read_bytes() == b"2"
    assert (base / "2" / "assets.extra" / "metrics.json").read_text() == '{"map": 1}'
    assert sorted(path.name for path in base.iterdir()) == ["1", "2"]


def test_killed_push_leaves_no_version(model, metrics, tmp_path, monkeypatch):
    base = tmp_path / "serving"

    def killed(source, target, **_):
        (target / "saved_model.pb").write_bytes(b"gr")
        raise KeyboardInterrupt

    monkeypatch.setattr(pusher.shutil, "copytree", killed)
    with pytest.raises(KeyboardInterrupt):
        push(model, base, [metrics])
    assert not any(path.name.isdecimal() for path in base.iterdir())
    monkeypatch.undo()
    assert push(model, base, [metrics]).name == "1"
    assert [path.name for path in base.iterdir()] == ["1"]


def test_only_old_leftovers_of_killed_pushes_are_removed(model, metrics, tmp_path):
    base = tmp_path / "serving"
    for name, age in ((".tmp-1-old", 7200), (".tmp-2-new", 0)):
        (base / name / "variables").mkdir(parents=True)
        os.utime(base / name, (time.time() - age,) * 2)
    push(model, base, [metrics])
    assert sorted(path.name for path in base.iterdir()) == [".tmp-2-new", "1"]


def test_other_metrics_or_another_file_make_a_new_version(model, metrics, tmp_path):
    base = tmp_path / "serving"
    push(model, base, [metrics])
    metrics.write_text('{"map": 2}')
    assert push(model, base, [metrics]).name == "2"
    (model / "more").write_bytes(b"")
    assert push(model, base, [metrics]).name == "3"


@pytest.mark.parametrize(("model_blessed", "infra_blessed", "pushed"), [(1, 1, 1), (0, 1, 0), (1, 0, 0)])
def test_only_a_blessed_model_is_pushed(model, metrics, tmp_path, model_blessed, infra_blessed, pushed):
    artifacts = {
        "model": standard_artifacts.Model(),
        "model_blessing": standard_artifacts.ModelBlessing(),
        "infra_blessing": standard_artifacts.InfraBlessing(),
        "pushed_model": standard_artifacts.PushedModel(),
    }
    artifacts["model"].uri = str(model.parent)
    artifacts["model_blessing"].uri = str(metrics.parent)
    artifacts["model_blessing"].set_int_custom_property("blessed", model_blessed)
    artifacts["infra_blessing"].set_int_custom_property("blessed", infra_blessed)
    artifacts["pushed_model"].uri = str(tmp_path / "pushed")
    destination = {"filesystem": {"base_directory": str(tmp_path / "serving")}}
    inputs = {name: [artifacts[name]] for name in ("model", "model_blessing", "infra_blessing")}
    AtomicPusherExecutor(tfx_executor.Executor.Context()).Do(
        inputs, {"pushed_model": [artifacts["pushed_model"]]}, {"push_destination": json_utils.dumps(destination)}
    )
    assert artifacts["pushed_model"].get_int_custom_property("pushed") == pushed
    assert (tmp_path / "serving" / "1").exists() is bool(pushed)
