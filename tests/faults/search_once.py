"""`cmimh search`, with its answer in found.json beside the index."""

import contextlib
import io
import sys
from pathlib import Path

from cmimh_tf.search import __main__ as search


def main() -> None:
    """Runs the command."""
    index = Path(sys.argv[sys.argv.index("--index") + 1])
    answer = io.StringIO()
    try:
        with contextlib.redirect_stdout(answer):
            search.main()
    finally:
        (index.parent / "found.json").write_text(answer.getvalue())
