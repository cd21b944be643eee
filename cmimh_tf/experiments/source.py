"""Which code measured: results that were made by different code should not stand in one table unnoticed."""

import functools
import hashlib
from pathlib import Path

import cmimh_tf

# All else in experiments/, and reports/, only lists cells and lays results out.
_MEASURES = ("independence_probe.py", "methods.py", "real_valued.py", "step_time.py", "trained_model.py")


@functools.cache
def source_fingerprint(root: Path = Path(cmimh_tf.__file__).parent) -> str:
    """Changes with every file of the package that can change a result.

    It is taken once a process: what is edited later is not what this process runs.

    Args:
        root: folder of the package.
    """
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] not in ("experiments", "reports") or path.name in _MEASURES:
            digest.update(str(relative).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
