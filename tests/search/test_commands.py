"""The commands `index` and `search` as a user runs them, in their own processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf.data.npz import save_npz
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.search.api import create_index, open_index
from tests.search.conftest import CAPTIONS, draw_picture, random_codes

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]


def run(module, *arguments):
    # The command itself must keep TensorFlow quiet, whatever the tests run under.
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, "-m", f"cmimh_tf.{module}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
        env=environment,
    )


def succeed(module, *arguments):
    result = run(module, *arguments)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    rows = ["image,text,labels,year"]
    for number, caption in enumerate(CAPTIONS):
        (folder / f"{number}.png").write_bytes(draw_picture(number))
        rows.append(f"{number}.png,{caption},{'dog' if 'dog' in caption else 'other'},{2018 + number}")
    (folder / "pairs.csv").write_text("\n".join(rows))
    return folder / "pairs.csv"


def test_from_pictures_and_captions_to_hits(table, exports, tmp_path):
    base, index = exports[0], tmp_path / "index"
    built = succeed("index", "build", "--model", base / "1", "--data", table, "--out", index)
    assert built.splitlines()[0] == f"{index}: 5 items of 16 bits"
    assert f"python -m cmimh_tf.search --index {index} --text" in built

    shown = succeed("search", "--index", index, "--text", "a blue dog", "red birds", "--find", "texts", "--top", "2")
    assert shown.splitlines()[0] == "text 'a blue dog'"
    assert "a blue dog" in shown.splitlines()[1]
    assert len(shown.splitlines()) == 7

    flags = ("--where", "label = 'dog' and year >= 2019", "--json")
    found = json.loads(
        succeed(
            "search", "--index", index, "--text", "a dog", "--image", table.parent / "1.png", "--id", "3.png", *flags
        )
    )
    assert [next(iter(answer["query"])) for answer in found] == ["text", "image", "id"]
    for answer in found:
        assert {hit["id"] for hit in answer["hits"]} == {"1.png", "2.png"}
        assert set(answer["hits"][0]) == {"id", "distance", "score", "found", "caption", "picture", "metadata", "code"}
    assert found[0]["hits"][0]["metadata"]["label"] == ["dog"]

    more = table.with_name("more.csv")
    more.write_text(f"image,text,labels,year,id\n{table.parent}/1.png,a green frog,frog,2030,1.png\n")
    added = succeed("index", "add", "--index", index, "--data", more)
    assert added == f"{index}: added 1 items, 1 of them replaced items with the same id; 5 in all\n"

    refused = run("search", "--index", index, "--model", base, "--text", "a dog")
    assert refused.returncode == 0  # The base still holds version 1, which made the index.
    refused = run("search", "--index", index, "--model", base / "2", "--text", "a dog")
    assert refused.returncode == 2
    assert f"python -m cmimh_tf.index rehash --index {index} --model {base / '2'}" in refused.stderr

    rehashed = succeed("index", "rehash", "--index", index, "--model", base)
    assert rehashed.startswith(f"{index}: 5 items hashed with {base / '2'} (version 2, fingerprint ")
    assert "green frog" in succeed(
        "search", "--index", index, "--text", "a green frog", "--find", "texts", "--top", "5"
    )

    removed = succeed("index", "remove", "--index", index, "--ids", "0.png", "nothing")
    assert removed == f"{index}: removed 1 items; not in the index: nothing; 4 left\n"
    assert succeed("index", "remove", "--index", index, "--where", "year > 2025").endswith("removed 1 items; 3 left\n")
    info = succeed("index", "info", "--index", index, "--verify")
    assert "items:          3; 3 with a picture, 3 with a text" in info
    assert "version 2, fingerprint" in info
    assert "label (labels), year (number)" in info or "year (number), label (labels)" in info
    assert info.endswith("every row matches its checksum\n")
    facts = json.loads(succeed("index", "info", "--index", index, "--json"))
    assert (facts["items"], facts["code_length"], facts["model"]["version"]) == (3, 16, 2)


def test_codes_need_no_model(tmp_path, random):
    codes = random_codes(random, 30, 16)
    np.savez(tmp_path / "codes.npz", ids=np.arange(30), image_codes=codes, year=np.arange(30))
    np.savez(tmp_path / "queries.npz", codes=codes[:2])
    index = tmp_path / "index"
    built = succeed("index", "build", "--codes", tmp_path / "codes.npz", "--out", index)
    assert built.startswith(f"{index}: 30 items")
    # Without a model nothing can be made of a text.
    assert built.endswith(f"python -m cmimh_tf.search --index {index} --id ID\n")
    found = json.loads(succeed("search", "--index", index, "--codes", tmp_path / "queries.npz", "--top", "3", "--json"))
    assert [answer["hits"][0]["distance"] for answer in found] == [0, 0]
    assert found[0]["query"] == {"code": codes[0].tobytes().hex()}
    shown = succeed("search", "--index", index, "--id", "0", "--radius", "16", "--top", "all", "--where", "year < 5")
    assert len(shown.splitlines()) == 4
    assert succeed("index", "add", "--index", index, "--codes", tmp_path / "codes.npz").endswith(
        "added 30 items, 30 of them replaced items with the same id; 30 in all\n"
    )
    refused = run("search", "--index", index, "--text", "a dog")
    assert refused.stderr.startswith(f"error: {index} was built from codes, without a model")


@pytest.fixture(scope="module")
def small(tmp_path_factory, runs):
    """An index of a run on vectors, and the files around it."""
    folder = tmp_path_factory.mktemp("small")
    random = np.random.default_rng(0)
    with create_index(folder / "index", model=runs[0] / "first") as index:
        index.add_codes(
            [str(number) for number in range(20)],
            image_codes=random_codes(random, 20, 16),
            metadata={"year": list(range(20))},
        )
    save_npz(folder / "pairs.npz", PairedData(image=random.random((5, 12)), text=random.random((5, 8))))
    (folder / "note.npz").write_text("no arrays")
    return folder, runs[0]


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("search", "--index {f}/nothing --id 1", "where there is none. Make one with: python -m cmimh_tf.index build"),
        ("search", "--index {f}/index --text x --where year>", "`where` cannot be parsed at character 6"),
        ("search", "--index {f}/index --text x --where yaer>3", "Did you mean year?"),
        ("search", "--index {f}/index --id 99", "Received: '99', which is not in the index."),
        ("search", "--index {f}/index --image photo.jpg", "Received: photo.jpg, which does not exist."),
        ("search", "--index {f}/index --codes {f}/missing.npy", "which does not exist"),
        ("search", "--index {f}/index --codes {f}/note.npz", "cannot be read as codes"),
        ("search", "--index {f}/index --text x --top 0", "`top` must be at least 1"),
        ("search", "--index {f}/index --text x", "Name the features with --text-features when the index is built"),
        ("search", "--index {f}/index --text x --model {r}/second", "must be searched with the model that made it"),
        ("search", "--index {f}/index --text x --model {f}", "`model` must be a run folder"),
        ("search", "--index {f}/index --text x --rerank features", "Build it with --keep-features"),
        ("index", "info --index {f}/nothing", "where there is none"),
        ("index", "build --model {f} --data {f}/pairs.npz --out {f}/new", "`model` must be a run folder"),
        ("index", "build --model {r}/first --data {f}/missing.npz --out {f}/new", "missing.npz does not exist"),
        ("index", "build --model {r}/first --data {f}/pairs.npz --out {f}/index", "must not exist yet"),
        ("index", "build --codes {f}/note.npz --out {f}/new", "note.npz, which is another kind of file"),
        ("index", "add --index {f}/index --data {f}/missing.npz", "missing.npz does not exist"),
        ("index", "remove --index {f}/index --where year", "`where` cannot be parsed"),
        ("index", "rehash --index {f}/index --model {f}/nothing", "which does not exist"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence_before_tensorflow_is_imported(small, module, arguments, message):
    folder, runs = small
    listed = [argument.format(f=folder, r=runs) for argument in arguments.split()]
    code = (
        "import sys, runpy\n"
        f"sys.argv = {[module, *listed]!r}\n"
        f"try: runpy.run_module('cmimh_tf.{module}', run_name='__main__', alter_sys=False)\n"
        "except SystemExit as end: print(end.code, 'tensorflow' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )
    assert result.stdout == "2 False\n", result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not (folder / "new").exists()


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("search", "--id 1"),
        ("search", "--index x"),
        ("search", "--index x --id 1 --find pictures"),
        ("index", "build --out x"),
        ("index", "build --out x --data y"),
        ("index", "build --out x --data y --codes z --model m"),
        ("index", "remove --index x"),
        ("index", "nonsense"),
    ],
)
def test_wrong_flags_are_a_usage_error(module, arguments):
    result = run(module, *arguments.split())
    assert result.returncode == 2
    assert f"usage: python -m cmimh_tf.{module}" in result.stderr


def test_searching_by_id_and_codes_imports_no_tensorflow(small):
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['search', '--index', '{small[0]}/index', '--id', '3', '--where', 'year < 10']\n"
        "try: runpy.run_module('cmimh_tf.search', run_name='__main__')\n"
        "except SystemExit as end: print(end.code, {'tensorflow', 'keras', 'tfx'} & set(sys.modules))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )
    assert result.stdout.endswith("0 set()\n"), result.stderr
    assert len(result.stdout.splitlines()) == 10


@pytest.mark.parametrize("module", ["search", "index"])
def test_help_teaches_by_examples(module):
    shown = succeed(module, "--help")
    assert "examples:" in shown
    assert "postgresql://" in shown


def test_a_database_address_works_in_the_commands(postgres_url, tmp_path, random):
    np.savez(tmp_path / "codes.npz", ids=np.arange(30), image_codes=random_codes(random, 30, 16), year=np.arange(30))
    address = f"{postgres_url}&table=commands"
    succeed("index", "build", "--codes", tmp_path / "codes.npz", "--out", address)
    shown = succeed("search", "--index", address, "--id", "3", "--where", "year >= 20", "--top", "4")
    assert len(shown.splitlines()) == 4
    assert "engine" not in succeed("index", "info", "--index", address)
    with open_index(address) as index:
        assert len(index) == 30
