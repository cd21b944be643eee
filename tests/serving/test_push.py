import os
import re
import time
from pathlib import Path

import pytest
import tensorflow as tf

from cmimh_tf.training.run_folder import RunFolder
from serving.push import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_folder(exported, tmp_path):
    """A finished run in runs/mine below the current folder."""
    folder = RunFolder(tmp_path / "runs" / "mine")
    folder.save_model(exported.model)
    folder.metrics.write_text('{"map": 0.5}\n')
    before = Path.cwd()
    os.chdir(tmp_path)
    yield folder
    os.chdir(before)


def test_each_push_adds_a_version_with_the_measures(run_folder, capsys):
    for number in ("1", "2"):
        with pytest.raises(SystemExit) as ended:
            main(["--model", "runs/mine", "--model-base", "serving_model/cmimh"])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"version {number}, 16 bits: serving_model/cmimh/{number}\n"
        extra = Path("serving_model/cmimh") / number / "assets.extra"
        assert (extra / "metrics.json").read_text() == '{"map": 0.5}\n'
        assert (extra / "config.json").is_file()
        assert (extra / "model_card.md").is_file()


def test_what_a_killed_push_left_is_removed_after_an_hour(run_folder):
    base = Path("serving_model/cmimh")
    for name, age in ((".tmp-1-old", 7200), (".tmp-2-new", 0)):
        (base / name / "variables").mkdir(parents=True)
        os.utime(base / name, (time.time() - age,) * 2)
    with pytest.raises(SystemExit):
        main(["--model", "runs/mine", "--model-base", str(base)])
    assert sorted(path.name for path in base.iterdir()) == [".tmp-2-new", "1"]


def test_a_model_that_is_not_there_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--model", str(tmp_path), "--model-base", str(tmp_path / "served")])
    assert ended.value.code == 2
    assert f"Received: {tmp_path}." in capsys.readouterr().err
    assert not (tmp_path / "served").exists()


def test_a_file_is_no_folder_of_versions(run_folder, tmp_path, capsys):
    (tmp_path / "afile").write_text("mine")
    with pytest.raises(SystemExit) as ended:
        main(["--model", "runs/mine", "--model-base", "afile"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("error: --model-base must be a folder. Received: afile, a file.\n")
    assert (tmp_path / "afile").read_text() == "mine"


def test_the_python_of_the_document_runs_as_it_is_written(exported, run_folder):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "serving.md").read_text(), re.DOTALL)
    exec(compile(code, "docs/serving.md", "exec"), {})
    loaded = tf.saved_model.load("serving_model/cmimh/1")
    rows = exported.image_rows(3)
    codes = loaded.signatures["hash_image"](image=tf.constant(rows))["code_bytes"].numpy()
    assert b"".join(codes) == exported.model.hash_images(rows).tobytes()
