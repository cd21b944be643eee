"""A process that changes an index until it is killed: python fault_writer.py MODE INDEX [BYTES].

It prints a line after every change that was acknowledged. With BYTES, no file may grow beyond so many bytes, as on a
full disk.
"""

import itertools
import resource
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from cmimh_tf.search.api import open_index
from cmimh_tf.search.building import build_from_codes
from cmimh_tf.search.items import make_batch

BATCH = 2000


def batch_ids(number):
    return [f"batch-{number}-{item}" for item in range(BATCH)]


def batch_codes(number):
    return np.random.default_rng(number).integers(0, 256, (BATCH, 8), dtype=np.uint8)


def add(index):
    """Adds new batches, and replaces one item of the batch before."""
    start = len(index) // BATCH
    for number in itertools.count(start):
        index.add_codes(
            batch_ids(number), image_codes=batch_codes(number), captions=[f"caption {number}"] * BATCH,
            metadata={"batch": [number] * BATCH},
        )  # fmt: skip
        print(number, flush=True)


def remove(index):
    """Removes one batch after the other."""
    for number in itertools.count():
        if index.remove(where=f"batch = {number}"):
            print(number, flush=True)


def replace_codes(index):
    """Replaces all codes by the same number, which grows."""
    for number in itertools.count(int(index.header.sources[0]["data"]) + 1 if index.header.sources else 1):

        def make(view, number=number):
            rows = view.all_rows()

            def batches():
                for start in range(0, len(rows), BATCH):
                    names = view.ids(rows[start : start + BATCH])
                    codes = np.full((len(names), 8), number % 256, np.uint8)
                    yield make_batch(names, code_length=64, image_codes=codes)[0]

            return replace(view.header, sources=[{"data": str(number)}]), batches()

        index.engine.replace_codes(make)
        print(number, flush=True)


def hold(index):
    """Begins a change and does not finish it."""
    with index.writing():
        print("held", flush=True)
        sys.stdin.read()


def main():
    mode, address, *limit = sys.argv[1:]
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit[0]), int(limit[0])))
    if mode == "build":
        for number in itertools.count():
            print(f"start {number}", flush=True)
            build_from_codes(f"{address}-{number}", Path(f"{address}.npz")).close()
            print(number, flush=True)
    index = open_index(address)
    print("ready", flush=True)
    try:
        {"add": add, "remove": remove, "replace": replace_codes, "hold": hold}[mode](index)
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
