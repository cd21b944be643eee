"""The command that measures the baselines: `python -m cmimh_tf.baselines --data FILE`."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from cmimh_tf import command_line
from cmimh_tf.baselines.registry import BASELINES, RIDGE_BASELINES
from cmimh_tf.codes import check_code_length

if TYPE_CHECKING:
    from cmimh_tf.baselines.cca import Ridge
    from cmimh_tf.data.pairs import PairedData

_UPPER_REFERENCE = "CCA cosine"
_METHODS = (*BASELINES, _UPPER_REFERENCE)
_MAP_AT = 1000
_RECALL_AT = 10
_EPILOG = """\
examples:
  python -m cmimh_tf.baselines --data features.npz --bits 32 --seed 0
  python -m cmimh_tf.baselines --data features.npz --methods CVH "ACQ (tuned ridge)"

Splits, measures and tie order are those of `python -m cmimh_tf.train` with the same seed. `CCA cosine` is not
a hasher: it ranks by real vectors with as many dimensions as the codes have bits.
"""


def main() -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python -m cmimh_tf.baselines",
        description="Fits the baselines on the training pairs, without labels, and measures retrieval.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", required=True, type=command_line.not_empty, metavar="FILE", help=command_line.DATA_HELP
    )
    parser.add_argument("--bits", type=int, default=32, metavar="L", help="code length, a multiple of 8")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of split, methods and tie order")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=_METHODS,
        default=_METHODS,
        metavar="NAME",
        help=f"measure only these of: {', '.join(_METHODS)}",
    )
    parser.add_argument(
        "--ridge",
        type=_ridge,
        metavar="X",
        help=f"ridge of {', '.join(RIDGE_BASELINES)} and {_UPPER_REFERENCE}, relative to the mean variance, or `auto` "
        "to choose it by the correlation of held-out training pairs (default: 0.001, and `auto` for "
        f"{_UPPER_REFERENCE})",
    )
    command_line.add_protocol_flag(parser)
    command_line.run(measure, parser.parse_args())


def measure(arguments: argparse.Namespace) -> None:
    """Fits and measures the baselines one after another, and prints one row each."""
    from cmimh_tf.data.splits import split_data
    from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, TASKS

    check_code_length(arguments.bits)
    data = command_line.load_data(arguments.data, arguments.seed)
    splits = split_data(data, arguments.seed, protocol=arguments.protocol)
    train, query, database = (data.take(rows) for rows in (splits.train, splits.query, splits.database))
    labelled = data.labels is not None
    title = f"mAP@{_MAP_AT}" if labelled else f"RecallOne@{_RECALL_AT}"
    tasks = TASKS if labelled else CROSS_MODAL_TASKS
    width = max(map(len, _METHODS)) + 2
    heading = f"{arguments.bits} bits, {title} in %"
    print(heading)
    print(f"{'':<{width}}" + "".join(f"{task:>16}" for task in tasks) + f"{'CPU s of fit':>16}")
    for name in arguments.methods:
        if name == _UPPER_REFERENCE and not labelled:
            continue
        evaluate = _evaluate_cosine if name == _UPPER_REFERENCE else _evaluate_codes
        values, seconds = evaluate(name, arguments, train, query, database)
        cells = "".join(f"{100 * values[task]:16.1f}" for task in tasks)
        print(f"{name:<{width}}{cells}{seconds:16.1f}", flush=True)


def _evaluate_codes(
    name: str, arguments: argparse.Namespace, train: PairedData, query: PairedData, database: PairedData
) -> tuple[dict[str, float], float]:
    from cmimh_tf.baselines.registry import make_baseline
    from cmimh_tf.metrics.evaluation import CodedItems, evaluate_retrieval

    options: dict[str, Any] = {}
    if arguments.ridge is not None and name in RIDGE_BASELINES:
        options["ridge"] = arguments.ridge
    hasher = make_baseline(name, arguments.bits, arguments.seed, **options)
    started = time.process_time()
    hasher.fit(train.image, train.text)
    seconds = time.process_time() - started
    coded = [
        CodedItems(hasher.hash_images(part.image), hasher.hash_texts(part.text), part.labels)
        for part in (query, database)
    ]
    metrics = evaluate_retrieval(*coded, map_at=[_MAP_AT], recall_one_at=[_RECALL_AT], seed=arguments.seed)
    return metrics[f"map_at_{_MAP_AT}" if metrics["labels"] else f"recall_one_at_{_RECALL_AT}"], seconds


def _evaluate_cosine(
    name: str, arguments: argparse.Namespace, train: PairedData, query: PairedData, database: PairedData
) -> tuple[dict[str, float], float]:
    from cmimh_tf.baselines.cca_cosine import CCACosine, cosine_mean_average_precision
    from cmimh_tf.metrics.evaluation import TASKS

    assert query.labels is not None  # Without labels it is not called.
    assert database.labels is not None
    ridge = "auto" if arguments.ridge is None else arguments.ridge
    started = time.process_time()
    cca = CCACosine(arguments.bits, ridge=ridge, seed=arguments.seed).fit(train.image, train.text)
    seconds = time.process_time() - started
    vectors = [
        {"image": cca.project_images(part.image), "text": cca.project_texts(part.text)} for part in (query, database)
    ]
    values = {}
    for task in TASKS:
        source, target = task.split("_to_")
        [values[task]] = cosine_mean_average_precision(
            vectors[0][source], vectors[1][target], query.labels, database.labels, ks=[_MAP_AT]
        )
    return values, seconds


def _ridge(value: str) -> Ridge:
    if value == "auto":
        return value
    try:
        ridge = float(value)
    except ValueError:
        ridge = 0.0
    if not ridge > 0:
        raise argparse.ArgumentTypeError(f"must be a positive number or `auto`. Received: {value}")
    return ridge


if __name__ == "__main__":
    main()
