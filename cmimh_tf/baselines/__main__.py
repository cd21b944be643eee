"""The command that measures the baselines: `python -m cmimh_tf.baselines --data FILE`."""

import argparse

from cmimh_tf import command_line

_EPILOG = """\
example:
  python -m cmimh_tf.baselines --data features.npz --bits 32 --seed 0 --ridge 0.3

Splits, measures and tie order are those of `python -m cmimh_tf.train` with the same seed.
"""


def main() -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python -m cmimh_tf.baselines",
        description="Fits linear baselines on the training pairs and measures retrieval.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", required=True, metavar="FILE", help=command_line.DATA_HELP)
    parser.add_argument("--bits", type=int, default=32, metavar="L", help="code length, a multiple of 8")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of split, rotations and tie order")
    parser.add_argument(
        "--ridge", type=float, default=1e-3, metavar="X", help="of both covariances, relative to the mean variance"
    )
    command_line.run(measure, parser.parse_args())


def measure(arguments: argparse.Namespace) -> None:
    """Fits and measures each baseline in turn."""
    from cmimh_tf.baselines.acq import ACQ
    from cmimh_tf.baselines.cvh import CVH
    from cmimh_tf.data.splits import make_splits
    from cmimh_tf.metrics.evaluation import CodedItems, evaluate_retrieval

    data = command_line.load_data(arguments.data, arguments.seed)
    splits = make_splits(len(data), arguments.seed, is_query=data.is_query)
    train = data.take(splits.train)
    for method in (CVH, ACQ):
        hasher = method(arguments.bits, ridge=arguments.ridge, seed=arguments.seed).fit(train.image, train.text)
        query, database = (
            CodedItems(hasher.hash_images(part.image), hasher.hash_texts(part.text), part.labels)
            for part in (data.take(splits.query), data.take(splits.database))
        )
        print(f"{method.__name__}, ridge {arguments.ridge:g}")
        print(command_line.metrics_table(evaluate_retrieval(query, database, seed=arguments.seed)))


if __name__ == "__main__":
    main()
