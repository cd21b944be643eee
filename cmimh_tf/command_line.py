"""What the commands have in common: flags, data by name or path, quiet start-up, and errors as one sentence."""

import argparse
import dataclasses
import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmimh_tf.config import PRESETS, CMIMHConfig, get_preset
from cmimh_tf.overrides import override, parse_overrides

if TYPE_CHECKING:
    from cmimh_tf.data.pairs import PairedData

# Without memory, Python raises one or the other.
_MEMORY_ERRORS = (MemoryError, SystemError)
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
DATA_HELP = (
    "an .npz of paired features (image, text, optional labels, ids, captions), or TFRecords, .jsonl, .parquet or .tar "
    "with vectors, or `emoji`, or `synthetic`"
)


def program(module: str) -> str:
    """The name of a command in its usage text: `cmimh NAME`, or `python -m MODULE`."""
    return sys.argv[0] if sys.argv[0].startswith("cmimh ") else f"python -m {module}"


def run(
    main: Callable[[argparse.Namespace], int | None], arguments: argparse.Namespace, *, resumes: bool = False
) -> None:
    """Runs a command's body. An error that the user can fix becomes one sentence on standard error and exit code 2.

    The body checks its arguments before it imports TensorFlow, which takes seconds, and calls `start_tensorflow` first.

    Args:
        main: the body.
        arguments: the parsed flags.
        resumes: whether the same command continues where it was stopped.
    """
    # TensorFlow reports CPU features and missing GPUs at each start, which helps no user.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.filterwarnings("ignore", category=FutureWarning, module="google.api_core")
    try:
        sys.exit(main(arguments) or 0)
    except KeyboardInterrupt:
        without = " without --overwrite" if getattr(arguments, "overwrite", False) else ""
        hint = f"stopped; run the same command{without} to continue" if resumes else "stopped"
        print(hint, file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        message = user_message(error)
        if isinstance(error, _MEMORY_ERRORS):
            # At once: without memory, every object that Python would free writes a line.
            os.write(2, f"error: {message}\n".encode())
            os._exit(2)
        if message is None or os.environ.get("CMIMH_TF_TRACEBACK"):
            raise
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


def user_message(error: Exception) -> str | None:
    """The sentence to show for an error that the user can fix; None for a defect, which needs its traceback."""
    if isinstance(error, _MEMORY_ERRORS):
        return f"Not enough memory ({type(error).__name__})."
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        place = f"{error.filename} could not be written" if error.filename else "A file could not be written"
        return f"{place}: {error.strerror}."
    if isinstance(error, ValueError | TypeError | OSError | ImportError | UserError):
        return str(error)
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(error, tensorflow.errors.OpError):
        # After the first line, TensorFlow's errors list graph nodes.
        return error.message.partition("\n")[0]
    return None


class UserError(RuntimeError):
    """An error that the user can fix, other than a wrong value, type, file or package."""


def start_tensorflow() -> None:
    """Imports TensorFlow quietly: XLA's first use prints four lines that no log level suppresses."""
    import tensorflow as tf

    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            tf.function(lambda x: x + 1.0, jit_compile=True)(tf.constant(0.0))
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def not_empty(text: str) -> str:
    """The `type` of flags for an address or a name, such as --data: '' would stand for the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"must not be empty. Received: {text!r}.")
    return text


def path(text: str) -> Path:
    """The `type` of flags for a file or a folder, such as --out."""
    return Path(not_empty(text))


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --preset, --bits, --epochs, --seed and --set."""
    parser.add_argument("--preset", choices=list(PRESETS), default="default", help="configuration to start from")
    parser.add_argument("--bits", type=int, metavar="L", help="code length, a multiple of 8 (default: the preset's)")
    parser.add_argument("--epochs", type=int, metavar="N", help="passes over the training pairs")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of split, initialisation and samples (default: 0)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a configuration value, such as loss.mutual_information_weight=4, or read a JSON file of "
        "overrides, @best.json; repeatable",
    )


def add_split_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --queries, --train-pairs and --protocol."""
    parser.add_argument(
        "--queries", type=int, metavar="N", help="size of the query set (default: an eighth, at most 2000)"
    )
    parser.add_argument(
        "--train-pairs", type=int, metavar="N", help="size of the training set (default: all pairs but the queries)"
    )
    add_protocol_flag(parser)


def add_protocol_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --protocol. The choices are those of `cmimh_tf.data.splits.PROTOCOLS`."""
    parser.add_argument(
        "--protocol",
        choices=("all", "paper"),
        default="all",
        help="pairs to train on unless --train-pairs or the data set them: all of the database, or at most 5000 of it "
        "as in the paper (default: all)",
    )


def config_from_flags(arguments: argparse.Namespace) -> CMIMHConfig:
    """The resolved configuration; --bits, --epochs and --seed take precedence over --set."""
    values = parse_overrides(arguments.set)
    flags = {"code_length": arguments.bits, "training.epochs": arguments.epochs, "seed": arguments.seed}
    values.update({key: value for key, value in flags.items() if value is not None})
    return override(get_preset(arguments.preset), values)


def check_data(name: str) -> None:
    """Raises FileNotFoundError or ValueError if --data names nothing that can be read. Imports no TensorFlow."""
    from cmimh_tf.data.sources import check_exists

    check_exists(name)


def load_data(name: str, seed: int, large_data_folder: Path | None = None) -> "PairedData":
    """Paired data by name (`emoji`, `synthetic`), from an .npz file, or from other files that hold vectors.

    Labels that are all 0 say nothing about any pair: they are left out, with a warning on standard error.

    Args:
        name: what --data got.
        seed: of the split; the words of `emoji` are those of its training part.
        large_data_folder: vectors in shards (TFRecords, or the parts that Spark writes) or an .npz above
            `cmimh_tf.stored_rows.IN_MEMORY_BYTES` are converted to files in this folder and read row by row; None loads
            them into memory.
    """
    import numpy as np

    data = _load(name, seed, large_data_folder)
    if isinstance(data.labels, np.ndarray) and not data.labels.any():
        print(f"warning: all labels of {name} are 0: it is treated as data without labels", file=sys.stderr)
        return dataclasses.replace(data, labels=None, classes=None)
    return data


def _load(name: str, seed: int, large_data_folder: Path | None) -> "PairedData":
    if name == "emoji":
        from cmimh_tf.data.emoji import NUM_EMOJI, load_emoji
        from cmimh_tf.data.splits import make_splits

        return load_emoji(vocabulary_rows=make_splits(NUM_EMOJI, seed).train)
    if name == "synthetic":
        from cmimh_tf.data.synthetic import make_synthetic

        return make_synthetic(2000, seed=seed)
    from cmimh_tf import stored_rows

    if name.lower().endswith(".npz"):
        from cmimh_tf.data.npz import load_npz, store_npz, vector_bytes

        if large_data_folder and vector_bytes(name) > stored_rows.IN_MEMORY_BYTES:
            return store_npz(name, large_data_folder)
        return load_npz(name)
    from cmimh_tf.data.records import load_vectors, store_vectors
    from cmimh_tf.data.sources import open_records

    reader = open_records(name)
    if large_data_folder and getattr(reader, "num_bytes", 0) > stored_rows.IN_MEMORY_BYTES:
        return store_vectors(reader, large_data_folder)
    return load_vectors(reader)


def load_data_in_parts(name: str, seed: int) -> Iterator["PairedData"]:
    """As `load_data`, with the rows of files a few at a time: vectors and ids, without official splits."""
    from cmimh_tf.data.sources import EMBEDDED_DATASETS, open_records

    if name in EMBEDDED_DATASETS:
        return iter([load_data(name, seed)])
    if name.lower().endswith(".npz"):
        from cmimh_tf.data.npz import load_npz_in_parts

        return load_npz_in_parts(name)
    from cmimh_tf.data.records import vector_parts

    return vector_parts(open_records(name))


def metrics_table(metrics: dict[str, Any]) -> str:
    """The measures of the four tasks as a table for the screen, in percent."""
    from cmimh_tf.metrics.evaluation import TASKS

    named = {"map_at_50": "mAP@50", "map_at_1000": "mAP@1000", "map": "mAP", "neighbour_map": "neighbour mAP"}
    recalls = {key: key.replace("recall_one_at_", "RecallOne@") for key in metrics if key.startswith("recall_one_at")}
    rows = []
    for key, title in {**named, **recalls}.items():
        if key in metrics:
            rows.append((title, metrics[key]))
        if key in metrics.get("asymmetric", {}):
            rows.append(("  asymmetric", metrics["asymmetric"][key]))
    lines = [f"{metrics['code_length']} bits, in %" + "".join(f"{task:>16}" for task in TASKS)]
    width = len(lines[0]) - 16 * len(TASKS)
    for title, values in rows:
        cells = "".join(f"{100 * values[task]:16.1f}" if task in values else f"{'-':>16}" for task in TASKS)
        lines.append(f"{title:<{width}}{cells}")
    if "chance" in metrics:
        lines.append(f"chance: {100 * metrics['chance']:.1f}")
    else:
        lines.append("no labels: only neighbour mAP and RecallOne@k can be measured")
    if "neighbour_map_chance" in metrics:
        lines.append(f"chance of neighbour mAP: {100 * metrics['neighbour_map_chance']:.1f}")
    return "\n".join(lines)
