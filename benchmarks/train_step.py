"""The time of a training step as a multiple of its matrix products alone, forward and backward.

    python benchmarks/train_step.py [--json FILE]

The products are run as bare `tf.matmul` of the same shapes in one graph, in the same process, alternating with the
steps, so that a noisy machine slows both.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator

from report import Figure, add_json_flag, report

IMAGE_UNITS, TEXT_UNITS, CODE_LENGTH = 1024, 1386, 32
LARGEST_RATIO = 1.4


def main() -> None:
    """Parses the flags, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="default", help="configuration to measure")
    parser.add_argument("--repeats", type=int, default=9, metavar="N", help="alternations of the two")
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="steps an alternation")
    add_json_flag(parser)
    arguments = parser.parse_args()
    step, products = make_step(arguments.preset), make_products(arguments.preset)
    step_seconds, product_seconds = [], []
    for _ in range(arguments.repeats):
        step_seconds.append(seconds_of(step, arguments.steps))
        product_seconds.append(seconds_of(products, arguments.steps))
    ratios = [a / b for a, b in zip(step_seconds, product_seconds, strict=True)]
    report(
        f"training step, {arguments.preset}: {IMAGE_UNITS}-d and {TEXT_UNITS}-d, {CODE_LENGTH} bits",
        [
            Figure("step", 1000 * statistics.median(step_seconds), "one compiled step of all four optimisers", "ms"),
            Figure("products", 1000 * statistics.median(product_seconds), "its matrix products alone", "ms"),
            Figure("ratio", statistics.median(ratios), "step / products", at_most=LARGEST_RATIO),
        ],
        arguments.json,
    )


def seconds_of(function: Callable[[], object], times: int) -> float:
    """Mean seconds of a call, after one that warms up."""
    function()
    started = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - started) / times


def make_step(preset: str) -> Callable[[], object]:
    """The train step that `fit` runs, on one batch that stays in memory."""
    import numpy as np
    import tensorflow as tf

    from cmimh_tf.config import get_preset
    from cmimh_tf.model import CMIMH
    from cmimh_tf.training.neighbourhood import find_neighbourhood

    model = CMIMH(CODE_LENGTH, config=get_preset(preset), image_units=IMAGE_UNITS, text_units=TEXT_UNITS)
    generator = np.random.default_rng(0)
    batch_size = model.config.training.batch_size
    image = generator.normal(size=(batch_size, IMAGE_UNITS)).astype(np.float32)
    text = generator.normal(size=(batch_size, TEXT_UNITS)).astype(np.float32)
    model.adapt(image, text)
    model.compile()
    columns = {"image": image, "text": text}
    if model.needs_coordinates:
        columns |= find_neighbourhood(image, text, model.config.neighbourhood)
    batch = {name: tf.constant(values) for name, values in columns.items()}
    compiled = tf.function(model.train_step)
    return lambda: compiled(batch)["loss"].numpy()


def make_products(preset: str) -> Callable[[], object]:
    """All matrix products of one step, in one graph."""
    import tensorflow as tf

    shapes = list(product_shapes(preset))
    tensors: dict[tuple[int, int], tf.Tensor] = {}
    for rows, inner, columns in shapes:
        for shape in ((rows, inner), (inner, columns)):
            tensors.setdefault(shape, tf.random.normal(shape))

    # The operands are arguments, or the graph would compute constants ahead of time, and equal products only once.
    copies = [
        (tf.identity(tensors[rows, inner]), tf.identity(tensors[inner, columns])) for rows, inner, columns in shapes
    ]

    @tf.function
    def multiply(operands: list) -> tf.Tensor:
        return tf.add_n([tf.matmul(left, right)[0, 0] for left, right in operands])

    return lambda: multiply(copies).numpy()


def product_shapes(preset: str) -> Iterator[tuple[int, int, int]]:
    """(rows, inner, columns) of every product in a step, forward and backward."""
    from cmimh_tf.config import get_preset
    from cmimh_tf.training.neighbourhood import coordinate_units

    config = get_preset(preset)
    hidden, critic, bits = config.network.hidden_units, config.network.critic_units, CODE_LENGTH
    decoder, batch = config.network.decoder_layers(), config.training.batch_size
    loss = config.loss
    if loss.neighbourhood_weight:
        yield from dense_products((bits, *decoder, coordinate_units(config.neighbourhood)), 2 * batch)
    for units in (IMAGE_UNITS, TEXT_UNITS):
        yield from dense_products((units, *hidden, bits), batch, input_gradient=False)
        decodings = bool(loss.reconstruction_weight) + bool(loss.cross_reconstruction_weight)
        if decodings == 2 and loss.cross_decoders == "separate":
            yield from dense_products((bits, *decoder, units), batch)
            yield from dense_products((bits, *decoder, units), batch)
        elif decodings:
            yield from dense_products((bits, *decoder, units), decodings * batch)
        if loss.mutual_information_weight:
            yield from dense_products((bits, *critic, config.network.critic_embedding_units), batch)
        if loss.independence_weight:
            # On codes and on shuffled codes for the discriminator's own loss, and once more back to the codes.
            widths = (bits, *critic, 1)
            yield from dense_products(widths, 2 * batch, input_gradient=False)
            yield from ((batch, after, before) for before, after in itertools.pairwise(widths))
    if loss.mutual_information_weight:
        embedding = config.network.critic_embedding_units
        yield batch, embedding, batch
        yield batch, batch, embedding
        yield batch, batch, embedding


def dense_products(widths: tuple[int, ...], rows: int, input_gradient: bool = True) -> Iterator[tuple[int, int, int]]:
    """Forward, weight gradient and input gradient of a chain of dense layers."""
    for position, (before, after) in enumerate(itertools.pairwise(widths)):
        yield rows, before, after
        yield before, rows, after
        if position or input_gradient:
            yield rows, after, before


if __name__ == "__main__":
    main()
