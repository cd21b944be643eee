"""Which reader a path or a name stands for, and quick answers if there is none."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.readers.in_memory import EmojiReader, NpzReader, SyntheticReader
from cmimh_tf.data.readers.tar import TarReader
from cmimh_tf.data.sources import check_exists, is_name, open_records

ROOT = Path(__file__).resolve().parents[2]


def test_folder_with_one_table_is_that_table(picture_folder):
    with pytest.raises(DataError, match=r"must have a table of the pictures' captions.*3 pictures"):
        open_records(str(picture_folder))
    (picture_folder / "captions.jsonl").write_text('{"image": "a.jpg", "text": "x"}\n')
    assert [record.id for record in open_records(str(picture_folder))] == ["a.jpg"]
    (picture_folder / "more.csv").write_text("image,text\n")
    with pytest.raises(DataError, match=r"must have one table.*captions.jsonl, more.csv"):
        open_records(str(picture_folder))


def test_names_and_suffixes_choose_the_reader(tmp_path):
    for name in ("a.npz", "b.tar", "c-0.tar.gz", "c-1.tar.gz"):
        (tmp_path / name).touch()
    assert isinstance(open_records("emoji"), EmojiReader)
    assert isinstance(open_records("synthetic"), SyntheticReader)
    assert open_records(str(tmp_path / "a.npz")) == NpzReader(tmp_path / "a.npz")
    assert open_records(str(tmp_path / "b.tar")) == TarReader(str(tmp_path / "b.tar"), (tmp_path / "b.tar",))
    assert len(open_records(str(tmp_path / "c-*")).paths) == 2


def test_path_takes_precedence_over_the_name_of_a_published_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_name("nuswide/main")
    assert not is_name("nuswide.csv")
    (tmp_path / "nuswide").mkdir()
    assert not is_name("nuswide")
    assert is_name("tfds:nuswide")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pears.csv", r"pears.csv does not exist\. Did you mean pairs.csv\? `data` must be .*\.parquet.*tfds:NAME"),
        ("emojii", r"emojii does not exist\. Did you mean emoji\?"),
        ("no/such/*.tar", r"no/such/\*\.tar does not exist\. `data` must be"),
    ],
)
def test_missing_path_comes_with_similar_names(tmp_path, monkeypatch, spec, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.csv").touch()
    for ask in (check_exists, open_records):
        with pytest.raises(FileNotFoundError, match=message):
            ask(spec)


@pytest.mark.parametrize("ask", [check_exists, open_records])
def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch, ask):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.csv").write_text("image,text\n")
    with pytest.raises(ValueError, match=r"`data` must be a path or a name\. Received: ''\."):
        ask("")


def test_existing_paths_and_names_pass(tmp_path):
    (tmp_path / "a.csv").touch()
    for spec in (
        "emoji",
        "synthetic",
        "mscoco/main",
        "tfds:x",
        str(tmp_path),
        str(tmp_path / "a.csv"),
        f"{tmp_path}/*",
    ):
        check_exists(spec)


@pytest.mark.parametrize(
    "arguments",
    [
        ["cmimh_tf.data", "check", "missing.csv"],
        ["cmimh_tf.features", "--data", "missing.csv", "--out", "x"],
        ["cmimh_tf.features", "--data", "emoji", "--out", "x", "--image-features", "efficientnet"],
        ["cmimh_tf.features", "--data", "emoji", "--out", "x", "--text-features", "tags:missing.txt"],
        ["cmimh_tf.features", "--data", "emoji", "--out", "x", "--pairs-per-shard", "0"],
        ["cmimh_tf.features", "--data", "emoji", "--no-such-flag"],
    ],
)
def test_wrong_arguments_are_answered_without_importing_tensorflow(tmp_path, arguments):
    # A module that cannot be imported stands in for TensorFlow.
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('TensorFlow was imported')")
    result = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert "error: " in result.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == [tmp_path / "tensorflow.py"]


def imported_modules(path):
    """All modules of `cmimh_tf` that a file imports, also inside functions, but not for type checking only."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    found |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in found if name.startswith(("cmimh_tf.data.", "cmimh_tf.features."))}


def test_modules_of_data_and_features_import_each_other_in_one_direction():
    files = [path for package in ("data", "features") for path in (ROOT / "cmimh_tf" / package).rglob("*.py")]
    imports = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): imported_modules(path)
        for path in files
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert len(imports) > 20
    while leaves := [name for name, needed in imports.items() if not needed & imports.keys()]:
        for name in leaves:
            del imports[name]
    assert not imports, f"These modules form a cycle: {', '.join(sorted(imports))}"
