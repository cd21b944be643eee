"""The command that measures a trained model on any data: `python -m cmimh_tf.evaluate --model DIR --data FILE`."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from cmimh_tf import command_line

_EPILOG = """\
examples:
  python -m cmimh_tf.evaluate --model runs/mine --data features.npz
  python -m cmimh_tf.evaluate --model runs/mine --data new.npz --queries 500 --json new_metrics.json
  python -m cmimh_tf.evaluate --model runs/mine --data features.npz --rerank asymmetric

The data is split into queries and database with the seed of the training. On the file that the model was trained on,
the queries are therefore the pairs that were held out. Without labels, only neighbour mAP and RecallOne@k are measured.
"""


def main() -> None:
    """Parses the flags and runs the command."""
    parser = argparse.ArgumentParser(
        prog=command_line.program("cmimh_tf.evaluate"),
        description="Measures retrieval between images and texts by the codes of a trained model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, type=command_line.path, metavar="DIR", help="folder of a finished run"
    )
    parser.add_argument(
        "--data", required=True, type=command_line.not_empty, metavar="FILE", help=command_line.DATA_HELP
    )
    parser.add_argument(
        "--queries",
        type=int,
        metavar="N",
        help="size of the query set (default: the training's on its data, else an eighth, at most 2000)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the split (default: the training's)")
    parser.add_argument(
        "--rerank",
        choices=("none", "asymmetric"),
        default="none",
        help="asymmetric: also rank by the logits of the queries (default: none)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measures to a file")
    command_line.run(evaluate, parser.parse_args())


def evaluate(arguments: argparse.Namespace) -> None:
    """Loads, splits, hashes, measures. Large vectors are read from temporary files, so that memory holds codes only."""
    from cmimh_tf.data.splits import split_data
    from cmimh_tf.training.run_folder import RunFolder, load_model, model_file

    model_file(arguments.model)
    command_line.check_data(arguments.data)
    command_line.start_tensorflow()
    from cmimh_tf.files import write_json
    from cmimh_tf.training.evaluation import evaluate_model

    model = load_model(arguments.model)
    seed = model.config.seed if arguments.seed is None else arguments.seed
    with TemporaryDirectory(prefix="cmimh-vectors-") as folder:
        data = command_line.load_data(arguments.data, model.config.seed, Path(folder))
        num_queries = arguments.queries
        if num_queries is None:
            num_queries = RunFolder(arguments.model).queries_of(data.fingerprint())
        splits = split_data(data, seed, num_queries=num_queries)
        query, database = data.take(splits.query), data.take(splits.database)
        metrics = evaluate_model(model, query, database, seed=seed, rerank=arguments.rerank)
    print(command_line.metrics_table(metrics))
    if arguments.json:
        write_json(arguments.json, metrics)


if __name__ == "__main__":
    main()
