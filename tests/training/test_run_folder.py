"""The run's folder: whose it is, one process at a time, and what is deleted."""

import pytest

from cmimh_tf.files import remove_folder, write_json
from cmimh_tf.training.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path):
    """A finished run, with a file of the user's beside it."""
    folder = RunFolder(tmp_path / "run")
    folder.claim({"config": {"seed": 0}, "data": {"fingerprint": "abc"}, "split": {"queries": 13}})
    for path in (folder.model, folder.metrics, folder.history, folder.path / "notes.txt"):
        path.write_text("x")
    for path in (folder.checkpoints, folder.tensorboard):
        path.mkdir()
        (path / "x").write_text("x")
    return folder


def test_another_run_is_refused_by_the_first_difference(folder):
    with pytest.raises(ValueError, match=r"holds another run: `config.seed` is 0 there and 1 here\. Choose another"):
        folder.claim({"config": {"seed": 1}, "data": {"fingerprint": "abc"}, "split": {"queries": 13}})


@pytest.mark.parametrize("name", ["model.keras", "metrics.json", "history.csv", "checkpoints", "tensorboard"])
def test_files_of_unknown_origin_are_neither_replaced_nor_deleted(folder, name):
    folder.config.unlink()
    for path in folder.path.iterdir():
        if path.name != name:
            remove_folder(path) if path.is_dir() else path.unlink()
    folder.clear()
    with pytest.raises(ValueError, match=rf"Received: a folder that has {name} and no config\.json\."):
        folder.claim({"config": {"seed": 1}})
    assert [path.name for path in folder.path.iterdir()] == [name]


def test_a_claim_says_whether_the_folder_is_new(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert folder.claim({"config": {"seed": 0}})
    assert not folder.claim({"config": {"seed": 0}})


def test_clearing_deletes_the_run_and_nothing_else(folder):
    folder.clear()
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]
    folder.clear()


def test_configuration_is_deleted_last(folder, monkeypatch):
    """A kill while clearing leaves a folder that no other run takes for its own."""

    def killed(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("cmimh_tf.training.run_folder.remove_folder", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.clear()
    assert folder.config.exists()
    assert not folder.model.exists()


def test_one_training_at_a_time(folder):
    message = r"`out` must not be in use\. .*run, where a training is running \(process \d+\)"
    with folder.locked(), pytest.raises(ValueError, match=message), folder.locked():
        pass
    with folder.locked():
        pass


def test_queries_are_those_of_the_same_data_only(folder):
    assert folder.queries_of("abc") == 13
    assert folder.queries_of("other data") is None
    assert RunFolder(folder.model).queries_of("abc") is None
    write_json(folder.config, {"config": {}}, checksum=True)
    assert folder.queries_of("abc") is None
