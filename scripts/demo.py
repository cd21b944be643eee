"""`make demo`: builds the model and the index of the embedded emoji if they are missing, and serves the search page.

Everything is in runs/: the pipeline's model, the pictures as PNG files with a table of them, and the index.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "runs" / "pipeline" / "emoji" / "serving_model" / "cmimh"
DEMO = ROOT / "runs" / "demo"
PICTURES = DEMO / "pictures"
TABLE = PICTURES / "emoji.csv"
INDEX = DEMO / "index"
_PICTURE_SIZE = 160


def main() -> None:
    """Builds what is missing, then serves until Ctrl+C."""
    parser = argparse.ArgumentParser(prog="make demo", description="Serves the search page over the embedded emoji.")
    parser.add_argument("--port", type=int, default=8600, help="0 chooses a free port (%(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--rebuild", action="store_true", help="build the index again, with the newest model")
    parser.add_argument("--no-server", action="store_true", help="only build what is missing")
    flags = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if not any(entry.name.isdecimal() for entry in MODELS.glob("*")):
        _run("Training a model; this takes a few minutes", "pipeline/run_local.py")
    if not TABLE.exists():
        print("== Drawing the pictures", flush=True)
        write_pictures()
    if flags.rebuild and INDEX.exists():
        shutil.rmtree(INDEX)
    if not INDEX.exists():
        arguments = ["build", "--model", str(MODELS), "--data", str(TABLE), "--out", str(INDEX)]
        _run("Building the index", "-m", "cmimh_tf.index", *arguments)
    if not flags.no_server:
        serve(flags.host, flags.port)


def write_pictures() -> None:
    """Writes the emoji as PNG files, and a table with their words, labels, and category."""
    from PIL import Image

    from cmimh_tf.data.emoji import load_emoji_raw
    from cmimh_tf.files import write_text

    emoji = load_emoji_raw(picture_size=_PICTURE_SIZE)
    PICTURES.mkdir(parents=True, exist_ok=True)
    rows = []
    for id, text, picture, labels in zip(emoji.ids, emoji.texts, emoji.pictures, emoji.labels, strict=True):
        Image.fromarray(picture).save(PICTURES / f"{id}.png")
        names = [name for name, is_set in zip(emoji.classes, labels, strict=True) if is_set]
        # The category comes first in `classes`.
        rows.append([id, f"{id}.png", text, "|".join(names), names[0], str(id.count("-") + 1)])
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(["id", "image", "text", "labels", "category", "code_points"])
    writer.writerows(rows)
    write_text(TABLE, table.getvalue())


def serve(host: str, port: int) -> None:
    """Serves the page, and prints its address once it can be opened."""
    from serving.search.service import running_search
    from serving.search.settings import SearchSettings
    from serving.web_server import run_service

    settings = SearchSettings(index=str(INDEX), picture_root=PICTURES, host=host, port=port, log_level="warning")

    @contextlib.asynccontextmanager
    async def service() -> AsyncIterator[None]:
        async with running_search(settings) as used_port:
            print(f"\nOpen http://{host}:{used_port}/ in a browser. Ctrl+C ends the service.", flush=True)
            yield

    print("== Starting the service", flush=True)
    run_service(service, settings.log_level)


def _run(title: str, *arguments: str) -> None:
    print(f"== {title}", flush=True)
    ended = subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False)
    if ended.returncode:
        sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
