"""Dependencies point one way: cmimh_tf <- tuner <- pipeline, and cmimh_tf <- serving <- pipeline (its export)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

OWN_PACKAGES = {"cmimh_tf", "tuner", "pipeline", "serving", "benchmarks", "tests", "scripts"}
ALLOWED_OWN_IMPORTS = {
    "cmimh_tf": {"cmimh_tf"},
    "tuner": {"cmimh_tf", "tuner"},
    "pipeline": {"cmimh_tf", "tuner", "serving", "pipeline"},
    "serving": {"cmimh_tf", "serving"},
}
# The method must be usable where neither the pipeline's nor the tuner's stack is installed.
FORBIDDEN_IN_THE_METHOD = {"tfx", "keras_tuner", "tensorflow_serving", "apache_beam", "tensorflow_transform", "pyspark"}
# Features are computed on Beam, and data sets may be read on it; it is imported when that is asked for.
ALLOWED_IN_THE_METHOD = {
    "cmimh_tf/features/beam_run.py": {"apache_beam"},
    "cmimh_tf/data/__main__.py": {"apache_beam"},
    "cmimh_tf/spark/cluster.py": {"pyspark"},
}


def imported_packages(source: str) -> set[str]:
    """Top-level names of all absolute imports in `source`, those inside functions included."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module)
    return {name.split(".")[0] for name in names}


def source_files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def test_imported_packages_finds_every_form():
    source = "import tfx.v1 as v1\nfrom tuner.a import b\nfrom . import c\ndef f():\n    import faiss, os.path\n"
    assert imported_packages(source) == {"tfx", "tuner", "faiss", "os"}


@pytest.mark.parametrize("package", ALLOWED_OWN_IMPORTS)
def test_dependencies_point_one_way(package):
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in source_files(package)
        for name in imported_packages(path.read_text()) & (OWN_PACKAGES - ALLOWED_OWN_IMPORTS[package])
    }
    assert not wrong


def test_method_imports_no_pipeline_stack():
    files = source_files("cmimh_tf")
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imported_packages(path.read_text()) & FORBIDDEN_IN_THE_METHOD
        if name not in ALLOWED_IN_THE_METHOD.get(str(path.relative_to(ROOT)), ())
    }
    assert files
    assert not wrong


def test_no_module_shadows_the_pipeline_package():
    # `python pipeline/run_local.py` puts that folder first on the path.
    assert not (ROOT / "pipeline" / "pipeline.py").exists()
