"""Runs the pipeline on this machine, from pairs to a pushed model and its index: `python pipeline/run_local.py`."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    # Python puts the script's folder first on the path, but `pipeline` must be imported from the folder above.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cmimh_tf import command_line
from cmimh_tf.data.records import PairReader
from cmimh_tf.data.sources import DATASETS, TFDS_PREFIX, open_records
from cmimh_tf.features.registry import (
    DEFAULT_IMAGE_FEATURES,
    DEFAULT_TEXT_FEATURES,
    image_features_version,
    text_features_version,
)
from pipeline import console
from pipeline.console import relative_path
from pipeline.root import PipelineRoot

if TYPE_CHECKING:
    from cmimh_tf.config import CMIMHConfig
    from pipeline.create_pipeline import PipelineOptions

NOT_PUSHED = 3
# In the order in which they run. Tuner and InfraValidator are optional.
COMPONENTS = (
    "PairExampleGen",
    "StatisticsGen",
    "ImportSchemaGen",
    "ExampleValidator",
    "Transform",
    "Tuner",
    "Trainer",
    "BlessedModelResolver",
    "RetrievalEvaluator",
    "SavedModelCheck",
    "InfraValidator",
    "Pusher",
    "IndexBuilder",
)
_EPILOG = f"""\
examples:
  python pipeline/run_local.py
  python pipeline/run_local.py --data features.npz --bits 64
  python pipeline/run_local.py --data pairs.csv --root runs/mine
  python pipeline/run_local.py --data features.npz --tune 20
  python pipeline/run_local.py --set loss.mutual_information_weight=4 --no-cache Trainer

components:
  {", ".join(COMPONENTS[:6])},
  {", ".join(COMPONENTS[6:])}

The root holds the pushed models (serving_model/cmimh/1, 2, ...), their search indexes (index/1, 2, ...), artifacts such
as the report, the curated schema, and logs. Results of earlier runs are reused unless their inputs have changed. To
resume an interrupted run, repeat the command.

exit status: 0 if the model was pushed, 1 if a component failed, 2 for invalid arguments, 3 if the model was not pushed.
"""


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = argparse.ArgumentParser(
        prog="python pipeline/run_local.py",
        description="Reads and checks paired data, fits the preprocessing, trains, evaluates and pushes a model, and\n"
        "builds its search index.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--dataset", choices=DATASETS, default="emoji", help="a data set by name (default: emoji)")
    data.add_argument(
        "--data",
        type=command_line.not_empty,
        metavar="PATH",
        help="your own data: an .npz, a table of pictures and captions (.csv, .jsonl, .parquet), a folder, .tar "
        "shards, TFRecords, or tfds:NAME",
    )
    command_line.add_config_flags(parser)
    parser.add_argument(
        "--root", type=command_line.path, metavar="DIR", help="folder of all runs (default: runs/pipeline/<data>)"
    )
    command_line.add_split_flags(parser)
    parser.add_argument(
        "--pca",
        type=int,
        default=1024,
        metavar="N",
        help="project wider inputs to N dimensions, 0: never (default: 1024)",
    )
    parser.add_argument(
        "--image-features",
        metavar="NAME",
        default=DEFAULT_IMAGE_FEATURES,
        help="features of pictures: descriptor, efficientnet_lite0, alexnet_fc7:FILE, vgg19_fc7:FILE, hub:HANDLE "
        "(default: efficientnet_lite0)",
    )
    parser.add_argument(
        "--text-features",
        metavar="NAME",
        default=DEFAULT_TEXT_FEATURES,
        help="features of captions: bag_of_words, tags:FILE, minilm, bert:HANDLE (default: minilm)",
    )
    parser.add_argument(
        "--vocabulary-size", type=int, default=2047, metavar="N", help="words of bag_of_words (default: 2047)"
    )
    parser.add_argument(
        "--schema", type=Path, metavar="FILE", help="schema to check the data against (default: that of the first run)"
    )
    parser.add_argument(
        "--from", dest="first", metavar="COMPONENT",
        help="run this component and all later ones again, even if nothing changed",
    )  # fmt: skip
    parser.add_argument(
        "--no-cache", action="append", default=[], metavar="COMPONENT",
        help="run this component again, even if nothing changed (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--min-score", type=float, default=0.0, metavar="X", help="minimum score of a blessed model, in %% (default: 0)"
    )
    parser.add_argument(
        "--max-drop", type=float, default=0.5, metavar="X",
        help="maximum loss against the last blessed model, in %% (default: 0.5)",
    )  # fmt: skip
    parser.add_argument("--tune", type=int, metavar="N", help="search for the loss weights first, in N trials")
    parser.add_argument(
        "--beam", action="append", default=[], metavar="KEY=VALUE", help="flag for Apache Beam, without -- (repeatable)"
    )
    parser.add_argument(
        "--docker-check", action="store_true", help="also load the model into TF Serving's Docker container"
    )
    parser.add_argument("--verbose", action="store_true", help="print the log to the screen")
    # Names of earlier versions.
    for old, new, kind in (
        ("--least-score", "min_score", float), ("--most-drop", "max_drop", float),
        ("--vocabulary", "vocabulary_size", int),
    ):  # fmt: skip
        parser.add_argument(old, dest=new, type=kind, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    """Parses the flags and runs."""
    arguments = make_parser().parse_args()
    if arguments.verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0")
    command_line.run(run, arguments, resumes=True)


def run(arguments: argparse.Namespace) -> int:
    """Runs the pipeline and returns the exit status.

    Raises:
        ValueError: for invalid arguments; nothing has been written then.
    """
    config, spec, reader = check_arguments(arguments)
    root = PipelineRoot((arguments.root or Path("runs") / "pipeline" / reader.name).absolute())
    log = root.logs / f"{datetime.datetime.now():%Y%m%d-%H%M%S}.log"
    with root.locked():
        root.claim(spec)
        with contextlib.nullcontext() if arguments.verbose else console.output_to_log(log):
            console.say(
                f"{reader.name}, {config.code_length} bits, seed {config.seed}; root: {relative_path(root.path)}"
            )
            started = time.monotonic()
            # TensorFlow, TFX and Beam take several seconds to import.
            from pipeline.runner import ComponentFailed, print_summary, run_in_root

            try:
                result = run_in_root(
                    root,
                    f"cmimh-{reader.name}",
                    make_options(arguments, config, spec, reader.fingerprint(), root),
                    schema=arguments.schema,
                    without_cache=uncached_components(arguments),
                    beam_arguments=[f"--{argument}" for argument in arguments.beam],
                )
            except ComponentFailed as error:
                traceback.print_exc()
                console.say(f"error: {error}")
                if error.component == "ExampleValidator":
                    schema = relative_path(arguments.schema or root.schema)
                    console.say(f"If the change is intended, edit the schema or delete it: {schema}")
                if not arguments.verbose:
                    console.say(f"log: {relative_path(log)}")
                return 1
            return 0 if print_summary(result, time.monotonic() - started, log) else NOT_PUSHED


def check_arguments(arguments: argparse.Namespace) -> tuple[CMIMHConfig, str, PairReader]:
    """Checks everything that can be checked without TensorFlow.

    Returns:
        The configuration, the source with an absolute path, and its reader.

    Raises:
        ValueError: for an invalid value.
        OSError: for a file that does not exist.
        ImportError: if the package of some features is missing.
    """
    for name, minimum in (("queries", 1), ("train_pairs", 1), ("vocabulary_size", 1), ("tune", 1), ("pca", 0)):
        value = getattr(arguments, name)
        if value is not None and value < minimum:
            raise ValueError(f"`--{name.replace('_', '-')}` must be at least {minimum}. Received: {value}.")
    known = components_of(arguments)
    for flag, components in (("--from", [arguments.first]), ("--no-cache", arguments.no_cache)):
        for component in components:
            if component is not None and component not in known:
                raise ValueError(f"`{flag}` must name one of {', '.join(known)}. Received: {component}.")
    if arguments.docker_check and shutil.which("docker") is None:
        raise ValueError("`--docker-check` needs Docker, but there is no `docker` command.")
    if arguments.schema is not None and not arguments.schema.is_file():
        raise FileNotFoundError(f"`--schema` must name a file that exists. Received: {arguments.schema}.")
    if arguments.image_features != DEFAULT_IMAGE_FEATURES:
        image_features_version(arguments.image_features)
    if arguments.text_features != DEFAULT_TEXT_FEATURES:
        text_features_version(arguments.text_features)
    config = command_line.config_from_flags(arguments)
    spec = arguments.dataset if arguments.data is None else absolute_spec(arguments.data)
    return config, spec, open_records(spec)


def absolute_spec(spec: str) -> str:
    """Makes the path in `--data` absolute; the name of a data set stays as it is."""
    is_name = spec.startswith(TFDS_PREFIX) or spec.split("/")[0] in DATASETS
    return spec if is_name and not Path(spec).exists() else str(Path(spec).absolute())


def components_of(arguments: argparse.Namespace) -> list[str]:
    """The components that these flags lead to, in the order in which they run."""
    absent = {"Tuner" if not arguments.tune else None, "InfraValidator" if not arguments.docker_check else None}
    return [component for component in COMPONENTS if component not in absent]


def uncached_components(arguments: argparse.Namespace) -> set[str]:
    """The components that run even if nothing changed."""
    known = components_of(arguments)
    later = known[known.index(arguments.first) :] if arguments.first else ()
    # These always run: TFX would only check for its own copy of a pushed model, but users may delete versions of models
    # and indexes. Publishing what is already there changes nothing.
    return {*arguments.no_cache, *later, "Pusher", "IndexBuilder"}


def make_options(
    arguments: argparse.Namespace, config: CMIMHConfig, spec: str, fingerprint: str, root: PipelineRoot
) -> PipelineOptions:
    """The options of the pipeline for these flags."""
    from pipeline.components.evaluator import Thresholds
    from pipeline.create_pipeline import PipelineOptions

    return PipelineOptions(
        source=spec,
        config=config,
        fingerprint=fingerprint,
        num_queries=arguments.queries,
        num_train=arguments.train_pairs,
        protocol=arguments.protocol,
        pca_units=arguments.pca or None,
        vocabulary_size=arguments.vocabulary_size,
        image_features=arguments.image_features,
        text_features=arguments.text_features,
        features_cache=str(root.features),
        thresholds=Thresholds(min_score=arguments.min_score / 100, max_drop=arguments.max_drop / 100),
        checkpoint_root=str(root.training),
        tune_trials=arguments.tune or 0,
        tuning_root=str(root.tuning),
        docker_check=arguments.docker_check,
    )


if __name__ == "__main__":
    main()
