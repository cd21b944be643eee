"""Loads the newest version of a model as `cmimh serve` does, and prints the codes of some pairs."""

import argparse
import json
import sys
from pathlib import Path

from cmimh_tf.data.npz import load_npz
from cmimh_tf.files import write_json
from serving.server.model_store import ModelStore
from serving.server.settings import Settings


def main() -> None:
    """Ends with the message of the model's status if the version is not available."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-base", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    store = ModelStore(Settings(model_base=arguments.model_base))
    store.poll()
    [status] = store.statuses("cmimh").values()
    if status.state != "AVAILABLE":
        print(f"error: {status.error_message}", file=sys.stderr)
        sys.exit(2)
    pairs = load_npz(arguments.data)
    with store.acquire("cmimh") as servable:
        codes = {
            side: [code.hex() for code in servable.runner(f"hash_{side}").run({side: values})["code_bytes"]]
            for side, values in (("image", pairs.image), ("text", pairs.text))
        }
    store.stop()
    print(json.dumps(codes))
    if arguments.out:
        write_json(arguments.out, codes)
