"""Installation on machines that cannot run the project, the wheel and its extras, and a bare import of the package."""

import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import cmimh_tf
from scripts.check_python import find_problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]

SUPPORTED = {
    "python": (3, 11, 7),
    "implementation": "CPython",
    "system": "Linux",
    "machine": "x86_64",
    "glibc": (2, 36),
    "has_venv": True,
    "has_compiler": False,
}


def test_supported_machine_has_no_problem():
    assert find_problem(**SUPPORTED) == ""


def test_python_3_10_with_a_compiler_has_no_problem():
    assert find_problem(**SUPPORTED | {"python": (3, 10, 13), "has_compiler": True}) == ""


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"system": "Darwin", "machine": "arm64"}, "Received: Darwin on arm64."),
        ({"system": "Darwin"}, "Received: Darwin on x86_64."),
        ({"system": "Windows", "machine": "AMD64"}, "Linux on x86_64 only"),
        ({"machine": "aarch64"}, "Received: Linux on aarch64."),
        ({"glibc": (2, 17)}, "must be glibc 2.28 or newer"),
        ({"glibc": ()}, "Received: another one, such as musl."),
        ({"python": (3, 12, 1)}, "must be CPython 3.11 or 3.10"),
        ({"python": (3, 9, 18)}, "Received: CPython 3.9.18 at "),
        ({"implementation": "PyPy"}, "Received: PyPy 3.11.7 at "),
        ({"has_venv": False}, "apt install python3.11-venv."),
        ({"python": (3, 10, 13)}, "apt install g++ python3.10-dev."),
    ],
)
def test_problem_is_one_line_that_says_what_to_do(change, sentence):
    problem = find_problem(**SUPPORTED | change)
    assert sentence in problem
    assert "\n" not in problem


def test_this_python_passes_the_check():
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "check_python.py"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.fixture
def project(tmp_path):
    """A folder with the installer and what it reads, and nothing to install."""
    (tmp_path / "scripts").mkdir()
    for name in ("install.sh", "check_python.py"):
        (tmp_path / "scripts" / name).write_text((ROOT / "scripts" / name).read_text())
    for name in ("requirements.txt", "requirements-3.10.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    return tmp_path


def _write_command(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def _install(project: Path, python: Path | str = "") -> subprocess.CompletedProcess:
    return subprocess.run(
        ["sh", project / "scripts" / "install.sh"],
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_installer_reports_the_reason_and_creates_nothing(project):
    # Runs like an interpreter, and fails the check like a wrong one.
    python = _write_command(project / "python3.12", '[ "$1" = -c ] && exit 0; echo "Must be another."; exit 1')
    run = _install(project, python)
    assert (run.returncode, run.stdout, run.stderr) == (1, "", "Must be another.\n")
    assert not (project / ".venv").exists()


def test_installer_passes_over_an_interpreter_that_does_not_run(project):
    shim = _write_command(project / "python3.10", 'echo "pyenv: python3.10: command not found" >&2; exit 127')
    run = _install(project, shim)
    assert run.returncode == 1
    assert run.stderr == f"Python 3.11 (or 3.10) is needed. Tried without success: {shim}.\n"


@pytest.fixture
def installed_calls(project):
    """Gives `project` an environment whose uv only records its calls; returns a function that counts them."""
    log = project / "calls"
    _write_command(project / ".venv/bin/python", '[ "$1" = -c ] && exit 1; [ "$1" = --version ] && echo 3.11; exit 0')
    _write_command(project / ".venv/bin/uv", f'echo "$@" >>"{log}"')
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


def test_second_installation_does_nothing(project, installed_calls):
    assert _install(project).returncode == 0
    assert installed_calls() == 2  # the lock, and the project itself
    run = _install(project)
    assert (run.returncode, run.stdout, installed_calls()) == (0, "", 2)


@pytest.mark.parametrize("changed", ["requirements.txt", "pyproject.toml", "serving/__init__.py"])
def test_change_is_installed(project, installed_calls, changed):
    _install(project)
    (project / changed).parent.mkdir(exist_ok=True)
    (project / changed).write_text("# changed")
    assert _install(project).returncode == 0
    assert installed_calls() == 4


def test_interrupted_installation_is_done_again(project, installed_calls):
    uv = project / ".venv/bin/uv"
    working = uv.read_text()
    _write_command(uv, "exit 130")
    assert _install(project).returncode != 0
    uv.write_text(working)
    assert _install(project).returncode == 0
    assert installed_calls() == 2


def _run_python(code: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_import_brings_in_nothing_heavy():
    heavy = {"tensorflow", "keras", "keras_tuner", "tfx", "apache_beam", "matplotlib", "numba", "scipy"}
    loaded = json.loads(_run_python("import cmimh_tf, json, sys; print(json.dumps(sorted(sys.modules)))"))
    assert "cmimh_tf" in loaded
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize("before", ["1", "0"])
def test_import_selects_keras_3_whatever_was_set(before):
    code = "import cmimh_tf, os; print(os.environ['TF_USE_LEGACY_KERAS'])"
    assert _run_python(code, TF_USE_LEGACY_KERAS=before) == "0\n"


def test_keras_3_stays_selected_when_tensorflow_transform_comes_later():
    code = (
        "import os; os.environ.pop('TF_USE_LEGACY_KERAS', None)\n"
        "import cmimh_tf, tensorflow_transform, tensorflow as tf\n"
        "print(os.environ['TF_USE_LEGACY_KERAS'], tf.keras.__version__[0])"
    )
    assert _run_python(code).splitlines()[-1] == "0 3"


PACKAGES = ("cmimh_tf", "tuner", "pipeline", "serving")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the packages without the data of tests."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__", "dummy_data"))
    code = "import sys, setuptools.build_meta as backend; backend.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, out], cwd=source, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(next(out.glob("*.whl"))) as archive:
        yield source, archive


def test_wheel_contains_every_file_that_the_packages_read(wheel):
    source, archive = wheel
    # Configuration of servers and clusters, which users copy from the repository.
    deployment = (".config", ".yml", ".yaml")
    paths = [path for name in PACKAGES for path in (source / name).rglob("*") if path.is_file()]
    files = {str(path.relative_to(source)) for path in paths}
    assert {file for file in files if not file.endswith(deployment)} <= set(archive.namelist())


def test_wheel_has_the_version_of_the_package_and_its_command(wheel):
    _, archive = wheel
    info = f"cmimh_tf-{cmimh_tf.__version__}.dist-info"
    assert f"\nVersion: {cmimh_tf.__version__}\n" in archive.read(f"{info}/METADATA").decode()
    assert "cmimh = cmimh_tf.__main__:main" in archive.read(f"{info}/entry_points.txt").decode()


# Packages that come with another one, and are imported without being declared.
IMPLIED = {
    "tensorflow": {"protobuf", "typing-extensions"},
    "tfx": {"ml-metadata", "tensorflow-metadata", "tensorflow-transform"},
}


def declared_packages(extra: str) -> set[str]:
    """The distributions that the base and an extra declare, those of its own extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pending, declared = [*project["dependencies"], *project["optional-dependencies"][extra]], set()
    while pending:
        name, extras = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", pending.pop()).groups()
        if name == "cmimh-tf":
            pending += [line for part in extras.split(",") for line in project["optional-dependencies"][part]]
        else:
            declared |= {name, *IMPLIED.get(name, ())}
    return declared


@pytest.mark.parametrize(
    ("folder", "extra"),
    [
        ("cmimh_tf/search/engines/nearest.py", "search"),
        ("cmimh_tf/search/engines/postgres.py", "postgres"),
        ("cmimh_tf/search/engines/milvus.py", "milvus"),
        ("cmimh_tf/data", "data"),
        ("cmimh_tf/features", "features"),
        ("cmimh_tf/baselines", "experiments"),
        ("cmimh_tf/experiments", "experiments"),
        ("cmimh_tf/reports", "reports"),
        ("tuner", "tuner"),
        ("pipeline", "pipeline"),
        ("serving", "serving"),
    ],
)
def test_extras_name_what_a_part_imports(folder, extra):
    distributions = importlib.metadata.packages_distributions()
    # Optional parts of `data` with an extra or a message of their own.
    elsewhere = {"apache-beam", "resvg-py", "etils"} if folder == "cmimh_tf/data" else set()
    path = ROOT / folder
    missing = {}
    for file in path.rglob("*.py") if path.is_dir() else [path]:
        for name in imported_packages(file.read_text()) - set(sys.stdlib_module_names) - set(PACKAGES):
            # `google` belongs to many distributions; here it is google.protobuf.
            found = ["protobuf"] if name == "google" else distributions.get(name, [name])
            owners = {re.sub(r"[-_.]+", "-", owner).lower() for owner in found}
            if owners.isdisjoint(declared_packages(extra) | elsewhere):
                missing.setdefault(name, str(file.relative_to(ROOT)))
    assert not missing


def imported_packages(source: str) -> set[str]:
    """Top-level names of all absolute imports, those inside functions included."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return {name.split(".")[0] for name in names}
