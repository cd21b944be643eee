"""Every code block of the documentation, every docstring example and every example of a help text is executed.

Python blocks run, in one namespace per page. Commands go through their own parsers, and those of `RUN` run. Every block
is executed or listed here with the reason; an unknown kind of block fails.
"""

import argparse
import ast
import dataclasses
import doctest
import functools
import importlib
import importlib.util
import itertools
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

from cmimh_tf import command_line, config

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cmimh_tf", "tuner", "pipeline", "serving")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [ROOT / "docs" / "results" / name for name in ("README.md", "default.md")]
PAGES += sorted((ROOT / "docs" / "api").glob("*.md"))

# Commands that run in the pages of `RUN_PAGES`, where their inputs are prepared. Elsewhere their flags are parsed.
RUN = ("cmimh_tf.train", "cmimh_tf.evaluate", "cmimh_tf.hash", "cmimh_tf.data", "cmimh_tf.index", "cmimh_tf.search")
RUN_PAGES = ("README.md", "data.md")
# Commands of the project whose flags are parsed, and why they do not run here.
PARSED = {
    "benchmarks.features": "takes minutes: make bench",
    "benchmarks.serving": "takes minutes: make bench",
    "cmimh_tf.baselines": "takes minutes: tests/baselines/test_command.py runs it",
    "cmimh_tf.experiments": "takes minutes: tests/experiments/test_command.py runs it",
    "cmimh_tf.features": "loads two networks: tests/features/test_featurize.py runs it",
    "cmimh_tf.spark": "starts Java: tests/spark runs it",
    "pipeline.run_kubeflow": "imports TFX: tests/pipeline/test_run_kubeflow.py runs it",
    "pipeline.run_local": "takes minutes: tests/e2e/test_pipeline.py runs it",
    "serving.client": "needs a server: tests/serving/test_client.py runs it",
    "serving.push": "tests/serving/test_push.py runs it",
    "serving.search": "runs until it is stopped: tests/search_service runs it",
    "serving.server": "runs until it is stopped: tests/e2e/test_serving.py runs it",
    "tuner.criteria_agreement": "needs a finished search: tests/tuner/test_criteria_agreement.py runs it",
    "tuner.search": "takes minutes: tests/tuner/test_search.py runs it",
}
# Commands of other programs, and why they are not run.
OTHER_PROGRAMS = {
    "curl": "needs a server",
    "docker": "there is no Docker in the tests",
    "kubectl": "there is no Kubernetes in the tests",
}
# Docstring examples that do not run, and why.
DOCSTRINGS_NOT_RUN = {"serving.client.HashingClient": "needs a server: tests/serving/test_client.py calls the same"}
# Data that are not prepared here: only the flags of commands that name them are parsed.
NOT_PREPARED = ("mirflickr25k", "new.npz", "wiki.npz")
# Text blocks that show the output of a command, by their first words, and why they are not compared.
OUTPUT_NOT_COMPARED: dict[tuple[str, str], str] = {}


@dataclass(frozen=True)
class Block:
    """A code block: its page, the line of its first line of code, its language and its text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[list[str]]:
        """The command lines of a shell block, split into words, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def read_blocks(page: Path) -> list[Block]:
    """All fenced and indented code blocks of a page, in order."""
    blocks = []
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            is_fence = token.type == "fence"
            language = token.info.strip() if is_fence else "sh"
            blocks.append(Block(page, token.map[0] + 1 + is_fence, language, token.content))
    return blocks


# Blocks of output or structure, and the function that checks each.
TEXT_BLOCKS: dict[tuple[str, str], Callable[[str], None]] = {}


def text_block(page: str, start: str) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """Registers the check of the text block of `page` that starts with `start`."""

    def register(check: Callable[[str], None]) -> Callable[[str], None]:
        TEXT_BLOCKS[page, start] = check
        return check

    return register


@text_block("docs/method.md", "L_rec")
def check_objective(text: str) -> None:
    from cmimh_tf.model import CMIMH

    assert text.strip() == CMIMH().equation


@text_block("docs/architecture.md", "cmimh_tf <- tuner")
def check_packages(text: str) -> None:
    assert set(re.findall(r"\w+", text)) == set(PACKAGES)


@text_block("docs/architecture.md", "cmimh_tf/\n")
def check_map(text: str) -> None:
    listed: list[str] = []
    parents: list[str] = []
    for line in text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        parents[depth:] = [line.split()[0]]
        listed.append("".join(parents))
    assert [path for path in listed if not (ROOT / path).exists()] == []
    folders = {
        path
        for path in listed
        if path.endswith("/") and not any(other.startswith(path) and other != path for other in listed)
    }
    sources = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    missing = {
        source
        for source in sources
        if source not in listed and not source.endswith("__init__.py") and not source.startswith(tuple(folders))
    }
    assert not missing, f"docs/architecture.md does not list {sorted(missing)}"


def check_text(block: Block) -> None:
    """Calls the check of a text block."""
    page = str(block.page.relative_to(ROOT))
    keys = [key for key in (*TEXT_BLOCKS, *OUTPUT_NOT_COMPARED) if key[0] == page and block.text.startswith(key[1])]
    assert len(keys) == 1, "a text block must have one entry in TEXT_BLOCKS or OUTPUT_NOT_COMPARED"
    if keys[0] in TEXT_BLOCKS:
        TEXT_BLOCKS[keys[0]](block.text)


# Commands


class Parsed(Exception):
    """The flags of a command, once its parser has accepted them."""

    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments


def module_of(words: list[str]) -> tuple[str, list[str]]:
    """The module that a command line runs, and its flags: `python -m MODULE ...`, `python FILE ...` or `cmimh ...`."""
    if words[0] == "cmimh":
        return "cmimh_tf", words[1:]
    assert words[0] == "python", words
    if words[1] == "-m":
        return words[2], words[3:]
    return words[1].removesuffix(".py").replace("/", "."), words[2:]


def call_main(module: str, flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the command of a module in this process."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"there is no module {module}"
    if module.startswith("benchmarks."):
        # Python puts the folder of a script on the path.
        monkeypatch.syspath_prepend(ROOT / "benchmarks")
    name = f"{module}.__main__" if spec.submodule_search_locations is not None else module
    monkeypatch.setattr(sys, "argv", [name, *flags])
    importlib.import_module(name).main()


def parse(module: str, flags: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """Runs a command up to the point where its own parser has accepted the flags, and checks --preset and --set."""
    plain = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, arguments: Any = None, namespace: Any = None) -> None:
        raise Parsed(plain(parser, arguments, namespace))

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        try:
            call_main(module, flags, patch)
        except Parsed as parsed:
            arguments = parsed.arguments
        except SystemExit:
            pytest.fail(f"{module} rejects {flags}: {capfd.readouterr().err}")
        else:
            pytest.fail(f"{module} did not parse its flags")
    if {"preset", "set", "epochs"} <= set(vars(arguments)):
        values = {**vars(arguments), "set": [value for value in arguments.set if not value.startswith("@")]}
        if module == "cmimh_tf.experiments":
            values.update(bits=None, seed=None, preset=arguments.preset or "default")
        command_line.config_from_flags(argparse.Namespace(**values))


def run(module: str, flags: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """Runs a command that must succeed."""
    with pytest.raises(SystemExit) as end:
        call_main(module, flags, monkeypatch)
    assert end.value.code == 0, f"{module} {flags} ended with {end.value.code}: {capfd.readouterr().err}"


def execute_command(
    words: list[str], page: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Runs or parses one command line of a page."""
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {words[1]}"
        return
    if words[0] in OTHER_PROGRAMS:
        for name, data in itertools.pairwise(words):
            if name == "-d":
                json.loads(data)
            if name == "-f":
                assert (ROOT / data).is_file()
        return
    module, flags = module_of(words)
    is_prepared = not any(flag.endswith(NOT_PREPARED) for flag in flags)
    if module in RUN and page.name in RUN_PAGES and is_prepared:
        run(module, flags, monkeypatch, capfd)
        return
    assert module in RUN or module in PARSED, f"{module} is neither in RUN nor in PARSED"
    parse(module, flags, monkeypatch, capfd)


# Inputs


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Makes the networks and trainings small where a block does not choose sizes itself."""
    network = {"hidden_units": (16, 16), "critic_units": (16, 16), "critic_embedding_units": 16}
    for kind, small in ((config.NetworkConfig, network), (config.TrainingConfig, {"epochs": 2})):
        fields = dataclasses.fields(kind)
        patch.setattr(kind.__init__, "__defaults__", tuple(small.get(field.name, field.default) for field in fields))
    patch.setitem(config.PRESETS, "default", config.CMIMHConfig())


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the files that the pages name, all of them small, and small default networks."""
    import tensorflow as tf

    from cmimh_tf import data as data_package
    from cmimh_tf.data import make_synthetic, save_npz

    folder = tmp_path_factory.mktemp("inputs")
    pairs = make_synthetic(240, seed=0)
    save_npz(folder / "coco18k.npz", dataclasses.replace(pairs, ids=np.arange(240)))
    save_npz(
        folder / "features.npz", dataclasses.replace(pairs, ids=np.array([f"{row:012}.jpg" for row in range(240)]))
    )
    rows = ["image,text,labels"]
    for number in range(60):
        picture = tf.cast(tf.random.stateless_uniform([8, 8, 3], [number, 0], 0, 255, tf.int32), tf.uint8)
        (folder / f"{number}.jpg").write_bytes(tf.io.encode_jpeg(picture).numpy())
        rows.append(f"{number}.jpg,picture {number} of {number % 3},{('dog', 'cat')[number % 2]}")
    (folder / "pairs.csv").write_text("\n".join(rows) + "\n")
    shutil.copy(folder / "0.jpg", folder / "photo.jpg")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        patch.setattr(data_package, "load_emoji", functools.cache(data_package.load_emoji))
        yield folder


@pytest.fixture(scope="module")
def trained(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, for pages that start from one."""
    from cmimh_tf import get_preset, load_npz, train_model

    out = tmp_path_factory.mktemp("trained") / "mine"
    train_model(load_npz(inputs / "features.npz"), get_preset("default"), out)
    return out


@pytest.fixture(scope="module")
def exported(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of versions of a model that takes pictures and captions; its networks are not trained."""
    from cmimh_tf.features.bag_of_words import BagOfWords
    from cmimh_tf.features.descriptor import DESCRIPTOR_DIM
    from cmimh_tf.model import CMIMH
    from serving.export import export_model
    from serving.preprocessing import PictureAndCaptionPreprocessing

    words = BagOfWords(["cat", "dog", "picture", "smiling"], unit_length=True, unknown_column=True)
    model = CMIMH(code_length=64, image_units=DESCRIPTOR_DIM, text_units=words.dim)
    random = np.random.default_rng(0)
    model.adapt(random.random((50, DESCRIPTOR_DIM)), random.random((50, words.dim)))
    base = tmp_path_factory.mktemp("exported")
    export_model(
        model, base / "1", preprocessing=PictureAndCaptionPreprocessing(words), warmup_batch_sizes=(1,)
    )  # fmt: skip
    return base


@pytest.fixture(scope="module")
def exported_for_vectors(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of versions of a model that takes the vectors of the pipeline's example."""
    from cmimh_tf.model import CMIMH
    from serving.export import export_model

    model = CMIMH(code_length=16, image_units=32, text_units=16)
    random = np.random.default_rng(0)
    model.adapt(random.random((50, 32)), random.random((50, 16)))
    base = tmp_path_factory.mktemp("exported_for_vectors")
    export_model(model, base / "1", warmup_batch_sizes=(1,))
    return base


@pytest.fixture(scope="module")
def indexed(inputs: Path, exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the pairs of pairs.csv."""
    from cmimh_tf.search.adapters import DataSource
    from cmimh_tf.search.building import build_index
    from cmimh_tf.search.models import describe_model

    out = tmp_path_factory.mktemp("indexed") / "index"
    build_index(str(out), describe_model(str(exported)), DataSource(str(inputs / "pairs.csv"))).close()
    return out


# What is prepared in the working directory of a block if its text names it.
PREPARED_FOLDERS = {
    '"runs/mine"': ("trained", "runs/mine"),
    "runs/pipeline/emoji/serving_model/cmimh": ("exported", "runs/pipeline/emoji/serving_model/cmimh"),
    'open_index("index")': ("indexed", "index"),
    "runs/example/serving_model/cmimh/1": ("exported_for_vectors", "runs/example/serving_model/cmimh"),
}


def prepare_folder(text: str, folder: Path, request: pytest.FixtureRequest) -> None:
    """Copies the inputs that a text names to its working directory."""
    shutil.copytree(request.getfixturevalue("inputs"), folder, dirs_exist_ok=True)
    for name, (fixture, place) in PREPARED_FOLDERS.items():
        if name in text and f'create_index("{place}"' not in text:
            shutil.copytree(request.getfixturevalue(fixture), folder / place)


# The tests


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks(page, tmp_path, monkeypatch, capfd, request):
    blocks = read_blocks(page)
    if any(block.language == "python" for block in blocks) or page.name in RUN_PAGES:
        prepare_folder(page.read_text(encoding="utf-8"), tmp_path, request)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        try:
            if block.language == "python":
                # The empty lines give tracebacks the lines of the page.
                exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)
            elif block.language == "sh":
                for words in block.commands():
                    execute_command(words, page, monkeypatch, capfd)
            elif block.language == "json":
                json.loads(block.text)
            elif block.language == "text":
                check_text(block)
            else:
                pytest.fail(f"unknown language {block.language!r}")
        except Exception as error:
            raise AssertionError(f"{block.place}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("module", [*RUN, *PARSED])
def test_examples_of_the_help_text_parse(module, monkeypatch, capfd):
    with pytest.raises(SystemExit) as end:
        call_main(module, ["--help"], monkeypatch)
    assert end.value.code == 0
    text = capfd.readouterr().out.replace("\\\n", " ")
    for line in re.findall(r"^\s*(python (?:-m|pipeline/).*)$", text, re.MULTILINE):
        parse(*module_of(shlex.split(line)), monkeypatch, capfd)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_targets_and_paths_in_the_text_exist(page):
    text = page.read_text(encoding="utf-8")
    modules = {name.rstrip(".") for name in re.findall(r"python -m ([\w.]+)", text)} - {"MODULE"}
    for module in modules:
        assert importlib.util.find_spec(module), module
    for name in re.findall(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)`", text):
        assert find_object(name), name
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"
    for path in re.findall(r"`((?:cmimh_tf|tuner|pipeline|serving|tests|benchmarks|scripts|docs)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", prose):
        assert (page.parent / link).exists(), link


def find_object(name: str) -> bool:
    """Whether a dotted name is a module or an attribute of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[count:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def test_walks_list_as_many_files_as_their_headings_say():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### A [\w ]+: (\d+) files\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(sections) >= 2
    for count, section in sections:
        files = re.findall(r"`([\w/]+\.py)`", "\n".join(re.findall(r"^\|.*\|$", section, re.MULTILINE)))
        assert len(files) == len(set(files)) == int(count)
        assert [file for file in files if not (ROOT / file).exists() and not (ROOT / "cmimh_tf" / file).exists()] == []


def test_modules_import_from_their_layer_or_below():
    layers = read_layers()
    wrong = []
    for path in (ROOT / "cmimh_tf").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "cmimh_tf").with_suffix("").parts)
        if module.split(".")[-1] in ("__init__", "__main__") or module.startswith("data.tfds_builders"):
            continue
        for imported in module_level_imports(path):
            if layer_of(imported, layers) > layer_of(module, layers):
                wrong.append(f"{module} imports {imported}")
    assert not wrong


def read_layers() -> dict[str, int]:
    """The layer of each module, from the table of docs/architecture.md; 0 is the bottom."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text[text.index("| layer | modules |") :].split("\n\n")[0].splitlines()[2:]
    layers = {}
    for number, row in enumerate(table):
        layers.update(dict.fromkeys(re.findall(r"`([\w.]+)`", row.split("|")[2]), number))
    return layers


def layer_of(module: str, layers: dict[str, int]) -> int:
    for name in (module, module.split(".")[0]):
        if name in layers:
            return layers[name]
    raise AssertionError(f"docs/architecture.md has no layer for {module}")


def module_level_imports(path: Path) -> set[str]:
    """The modules of cmimh_tf that a file imports at import time, without the package's name."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module == "cmimh_tf":
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cmimh_tf."):
            module = (node.module or "").removeprefix("cmimh_tf.")
            files = {
                alias.name
                for alias in node.names
                if (ROOT / node.module.replace(".", "/") / f"{alias.name}.py").exists()
            }
            found.update({f"{module}.{name}" for name in files} or {module})
    return {name for name in found if name not in ("__version__", "__file__")}


# Docstrings


def docstring_examples() -> list[tuple[str, str, str]]:
    """Module, qualified name and text of each docstring with an example."""
    found = []

    def visit(node: ast.AST, module: str, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(child) or ""
                if ">>>" in text:
                    found.append((module, f"{name}.{child.name}", text))
                visit(child, module, f"{name}.{child.name}")

    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if ">>>" in (text := ast.get_docstring(tree) or ""):
                found.append((module, module, text))
            visit(tree, module, module)
    return found


DOCSTRINGS = docstring_examples()


class ShownOutput(doctest.OutputChecker):
    """Compares output where the example shows some."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


def prepared_names(inputs: Path) -> dict[str, Callable[[], Any]]:
    """What docstring examples may use without defining it."""
    import tensorflow as tf

    from cmimh_tf import CMIMH, create_index, load_npz, make_splits
    from cmimh_tf.data import open_records

    data = load_npz(inputs / "features.npz")

    def compiled_model() -> CMIMH:
        model = CMIMH(code_length=32, image_units=data.image.shape[1], text_units=data.text.shape[1])
        model.compile()
        return model

    codes = np.arange(16, dtype=np.uint8).reshape(2, 8)
    return {
        "batches": lambda: [(["a", "b"], codes), (["c", "d"], codes)],
        "blocks": lambda: [data.image[:100], data.image[100:]],
        "codes": lambda: codes,
        "data": lambda: data,
        "dataset": lambda: tf.data.Dataset.from_tensor_slices({"image": data.image, "text": data.text}),
        "export": lambda: inputs,
        "features": lambda: data.image,
        "hash_block": lambda: len,
        "image": lambda: data.image,
        "index": lambda: create_index("new_index", code_length=64),
        "model": compiled_model,
        "open_records": lambda: open_records,
        "rows": lambda: data.image,
        "splits": lambda: make_splits(len(data), seed=0),
        "text": lambda: data.text,
    }


def test_examples_were_found():
    names = {name for _, name, _ in DOCSTRINGS}
    assert "cmimh_tf.model.CMIMH" in names
    assert set(DOCSTRINGS_NOT_RUN) <= names


@pytest.mark.parametrize(("module", "name", "text"), DOCSTRINGS, ids=[name for _, name, _ in DOCSTRINGS])
def test_docstring_example(module, name, text, inputs, tmp_path, monkeypatch, request):
    if name in DOCSTRINGS_NOT_RUN:
        return
    prepare_folder(text, tmp_path, request)
    monkeypatch.chdir(tmp_path)
    namespace = dict(vars(importlib.import_module(module)))
    for prepared, make in prepared_names(inputs).items():
        if re.search(rf"\b{prepared}\b", text) and prepared not in namespace:
            namespace[prepared] = make()
    example = doctest.DocTestParser().get_doctest(text, namespace, name, module, 0)
    output: list[str] = []
    result = doctest.DocTestRunner(ShownOutput(), verbose=False).run(example, out=output.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(output)
