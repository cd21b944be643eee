"""The command that trains and measures: `python -m cmimh_tf.train --data FILE --out DIR`."""

import argparse
import dataclasses
from typing import TYPE_CHECKING

from cmimh_tf import command_line

if TYPE_CHECKING:
    from cmimh_tf.config import CMIMHConfig
    from cmimh_tf.data.pairs import PairedData
    from cmimh_tf.training.run_folder import RunFolder
    from cmimh_tf.training.trainer import TrainedModel

_EPILOG = """\
examples:
  python -m cmimh_tf.train --data emoji --out runs/emoji
  python -m cmimh_tf.train --data features.npz --bits 64 --seed 1 --out runs/mine
  python -m cmimh_tf.train --data features.npz --set loss.mutual_information_weight=4 --out runs/weights

The folder will contain config.json, model.keras, metrics.json, code_profile.json, history.csv, checkpoints/ and
tensorboard/. If a run is interrupted, run the same command again to continue. Then: `python -m cmimh_tf.evaluate` and
`python -m cmimh_tf.hash`.
"""


def main() -> None:
    """Parses the flags and runs the command."""
    parser = argparse.ArgumentParser(
        prog=command_line.program("cmimh_tf.train"),
        description="Learns binary codes for paired images and texts, without labels, and measures retrieval.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", required=True, type=command_line.not_empty, metavar="FILE", help=command_line.DATA_HELP
    )
    parser.add_argument("--out", required=True, type=command_line.path, metavar="DIR", help="folder of the run")
    command_line.add_config_flags(parser)
    command_line.add_split_flags(parser)
    parser.add_argument(
        "--shuffle-pairs",
        action="store_true",
        help="control experiment: assign texts to images at random; quality must fall to chance",
    )
    parser.add_argument("--overwrite", action="store_true", help="delete the run in --out first")
    command_line.run(train, parser.parse_args(), resumes=True)


def train(arguments: argparse.Namespace) -> None:
    """Trains, measures, and writes the run's folder."""
    config = command_line.config_from_flags(arguments)
    command_line.check_data(arguments.data)
    command_line.start_tensorflow()
    import numpy as np

    from cmimh_tf.data.splits import split_data
    from cmimh_tf.files import remove_folder, write_json
    from cmimh_tf.terms import equation
    from cmimh_tf.training.evaluation import evaluate_model, profile_pairs
    from cmimh_tf.training.run_folder import RunFolder, load_model

    folder = RunFolder(arguments.out)
    data = command_line.load_data(arguments.data, config.seed, folder.vectors)
    splits = split_data(
        data,
        config.seed,
        num_queries=arguments.queries,
        num_train=arguments.train_pairs,
        protocol=arguments.protocol,
    )
    pairs = data.take(splits.train)
    if arguments.shuffle_pairs:
        order = np.random.default_rng([config.seed, 2]).permutation(len(pairs))
        pairs = dataclasses.replace(pairs, text=pairs.take(order).text)
    print(
        f"{arguments.data}: {len(data):,} pairs, image {data.image.shape[1]}-d, text {data.text.shape[1]}-d; "
        f"training on {len(pairs):,}, {len(splits.query):,} queries against {len(splits.database):,}"
    )

    with folder.locked():
        if arguments.overwrite:
            folder.clear()
        is_new = folder.claim(
            {
                "config": config.to_dict(),
                "data": {
                    "name": arguments.data,
                    "fingerprint": data.fingerprint(),
                    "train_fingerprint": pairs.fingerprint(),
                },
                "split": {
                    "seed": config.seed,
                    "queries": arguments.queries,
                    "train_pairs": arguments.train_pairs,
                    # Runs of earlier versions have no such key, and can still be continued.
                    **({"protocol": arguments.protocol} if arguments.protocol != "all" else {}),
                },
            }
        )
        if folder.model.exists():
            print(
                f"The run in {folder.path} is already finished, so it is only measured again. Use --overwrite to train "
                "again."
            )
            model, problems = load_model(folder.path), []
        else:
            print(f"minimising {equation(config.loss)}")
            trained = start_training(pairs, config, folder, is_new)
            model, problems = trained.model, trained.problems

        query = data.take(splits.query)
        metrics = evaluate_model(model, query, data.take(splits.database), seed=config.seed)
        write_json(folder.metrics, metrics, checksum=True)
        write_json(folder.profile, profile_pairs(model, query, config.seed), checksum=True)
        remove_folder(folder.vectors)
    print(command_line.metrics_table(metrics))
    for problem in problems:
        print(f"warning: {problem}")
    print(f"model, metrics and history: {folder.path}")


def start_training(pairs: "PairedData", config: "CMIMHConfig", folder: "RunFolder", is_new: bool) -> "TrainedModel":
    """Trains. A new folder whose training cannot even start is left empty, so that a corrected command may use it."""
    from cmimh_tf.training.callbacks import TrainingDiverged
    from cmimh_tf.training.trainer import train_model

    try:
        return train_model(pairs, config, folder.path)
    except Exception as error:
        has_checkpoint = (folder.checkpoints / "checkpoint").exists()
        if is_new and not has_checkpoint and not isinstance(error, TrainingDiverged):
            folder.clear()
        raise


if __name__ == "__main__":
    main()
