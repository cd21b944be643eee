"""Lists the project's files whose functions a command calls, in order of the first call; see docs/architecture.md.

    python scripts/called_files.py -m cmimh_tf.train --data synthetic --preset smoke --out /tmp/run
    python scripts/called_files.py pipeline/run_local.py --preset smoke --root /tmp/root

Calls that a module makes while it is imported do not count. Code compiled by numba cannot be observed, so
`metrics/kernels.py` and `search/engines/nearest_kernel.py` are missing from the list although they run. Subprocesses
are not observed.
"""

import ast
import builtins
import importlib.machinery
import runpy
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cmimh_tf", "tuner", "pipeline", "serving")
_COMPILED = [ROOT / "cmimh_tf" / name for name in ("metrics/kernels.py", "search/engines/nearest_kernel.py")]
_OPTIMIZED = 1  # in co_flags: the code of a function, not of a module or class body

called: dict[str, None] = {}


def note(path: str) -> None:
    """Records a call of a function in `path`, unless the caller is a module or class body that is being imported."""
    caller = sys._getframe(2)
    if caller.f_code.co_flags & _OPTIMIZED or caller.f_globals.get("__name__") == "__main__":
        called.setdefault(path)


def instrument(path: Path) -> CodeType:
    """Compiles a file with a call of `note` at the start of each function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = int(ast.get_docstring(node) is not None)
            node.body[first:first] = ast.parse(f"__note__({str(path.relative_to(ROOT))!r})").body
    return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


def is_own(path: Path) -> bool:
    """Whether a file belongs to the project's packages."""
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES and path not in _COMPILED


def main() -> None:
    """Runs the command in the arguments and prints the list to standard error."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    builtins.__note__ = note  # type: ignore[attr-defined]
    plain_get_code = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        path = Path(loader.path)
        return instrument(path) if is_own(path) else plain_get_code(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    sys.path[0] = str(ROOT)
    try:
        if sys.argv[1] == "-m":
            sys.argv = sys.argv[2:]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = sys.argv[1:]
            module = ModuleType("__main__")
            module.__file__ = str((ROOT / sys.argv[0]).resolve())
            sys.modules["__main__"] = module
            exec(instrument(Path(module.__file__)), module.__dict__)
    finally:
        print(f"{len(called)} files:", *called, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
