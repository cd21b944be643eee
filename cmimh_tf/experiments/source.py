"""Which code measured: results that were made by different code should not stand in one table unnoticed."""

import hashlib
from pathlib import Path

import cmimh_tf

# These lay results out; what measures in experiments/ is thin.
_LAYS_OUT = ("experiments", "reports")


def source_fingerprint() -> str:
    """Changes with every file of the package that can change a result."""
    root = Path(cmimh_tf.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] not in _LAYS_OUT:
            digest.update(str(relative).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
