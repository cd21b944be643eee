"""The time of hashing 100,000 rows of features as a multiple of its matrix products alone.

    python benchmarks/hash.py [--json FILE]

The products are bare `tf.matmul` of the encoder's shapes over the same blocks of rows, in the same process.
"""

import argparse
import itertools
import resource
import statistics
import time
from collections.abc import Callable

from report import Figure, add_json_flag, report

LARGEST_RATIO = 1.3


def main() -> None:
    """Parses the flags, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, metavar="N")
    parser.add_argument("--units", type=int, default=1024, metavar="N", help="width of the features")
    parser.add_argument("--bits", type=int, default=32, metavar="L")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="alternations of the two")
    add_json_flag(parser)
    arguments = parser.parse_args()

    import numpy as np
    import tensorflow as tf

    from cmimh_tf.config import get_preset
    from cmimh_tf.hashing import BLOCK_ROWS
    from cmimh_tf.model import CMIMH
    from cmimh_tf.overrides import override

    config = override(get_preset("default"), {"code_length": arguments.bits})
    model = CMIMH(config=config, image_units=arguments.units, text_units=8)
    features = np.random.default_rng(0).standard_normal((arguments.rows, arguments.units), np.float32)
    widths = (arguments.units, *config.network.hidden_units, arguments.bits)
    weights = [tf.random.normal(shape) for shape in itertools.pairwise(widths)]
    blocks = [tf.constant(features[start : start + BLOCK_ROWS]) for start in range(0, arguments.rows, BLOCK_ROWS)]

    @tf.function(reduce_retracing=True)
    def multiply(rows: tf.Tensor) -> tf.Tensor:
        for weight in weights:
            rows = tf.matmul(rows, weight)
        return rows

    def products() -> None:
        for block in blocks:
            multiply(block)

    model.hash_images(features[:BLOCK_ROWS])
    products()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = [(seconds(lambda: model.hash_images(features)), seconds(products)) for _ in range(arguments.repeats)]
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    hashing, bare = (statistics.median(column) for column in zip(*times, strict=True))
    report(
        f"hashing {arguments.rows:,} rows of {arguments.units}-d features to {arguments.bits} bits",
        [
            Figure("hash", hashing, "model.hash_images", "s"),
            Figure("products", bare, "its matrix products alone", "s"),
            Figure("extra_memory", extra / 1024, "more memory than for one block", "MB"),
            Figure("ratio", statistics.median(a / b for a, b in times), "hash / products", at_most=LARGEST_RATIO),
        ],
        arguments.json,
    )


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
