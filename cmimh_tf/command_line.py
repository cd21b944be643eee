"""What the commands share: data by name or path, quiet start-up, and errors as one sentence."""

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cmimh_tf.config import PRESETS, CMIMHConfig, get_preset
from cmimh_tf.overrides import override, parse_overrides

if TYPE_CHECKING:
    from cmimh_tf.data.paired import PairedData

DATA_HELP = (
    "an .npz of paired features (image, text, optional labels, ids, captions), or TFRecords, .jsonl, .parquet or .tar "
    "with vectors, or `emoji`, or `synthetic`"
)


def run(
    main: Callable[[argparse.Namespace], int | None], arguments: argparse.Namespace, *, resumes: bool = False
) -> None:
    """Runs a command's body; what a user can cure becomes one sentence on standard error and exit code 2.

    Args:
        main: the body.
        arguments: the parsed flags.
        resumes: whether the same command goes on where it was stopped.
    """
    # TensorFlow announces its CPU features and missing GPUs at each start; none of it helps a user.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.filterwarnings("ignore", category=FutureWarning, module="google.api_core")
    _swallow_xla_greeting()
    import tensorflow as tf

    from cmimh_tf.training.divergence import TrainingDiverged

    try:
        sys.exit(main(arguments) or 0)
    except (ValueError, TypeError, OSError, ImportError, TrainingDiverged, tf.errors.OpError) as error:
        if os.environ.get("CMIMH_TF_TRACEBACK"):
            raise
        # TensorFlow's errors, such as that of a full disk, go on with the graph's nodes.
        message = error.message.partition("\n")[0] if isinstance(error, tf.errors.OpError) else error
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        without = " without --overwrite" if getattr(arguments, "overwrite", False) else ""
        print(f"stopped; the same command{without} goes on where it was" if resumes else "stopped", file=sys.stderr)
        sys.exit(130)


def _swallow_xla_greeting() -> None:
    """Compiles a trifle with standard error closed: XLA's first use prints four lines that no log level holds back."""
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


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --preset, --bits, --epochs, --seed and --set."""
    parser.add_argument("--preset", choices=list(PRESETS), default="default", help="configuration to start from")
    parser.add_argument("--bits", type=int, metavar="L", help="code length, a multiple of 8 (default: the preset's)")
    parser.add_argument("--epochs", type=int, metavar="N", help="passes over the training pairs")
    parser.add_argument("--seed", type=int, metavar="N", help="of split, initialisation and every sample (default: 0)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one value, such as loss.mutual_information_weight=4, or take a file: @best.json (repeatable)",
    )


def config_from_flags(arguments: argparse.Namespace) -> CMIMHConfig:
    """The resolved configuration; --bits, --epochs and --seed win over --set."""
    values = parse_overrides(arguments.set)
    flags = {"code_length": arguments.bits, "training.epochs": arguments.epochs, "seed": arguments.seed}
    values.update({key: value for key, value in flags.items() if value is not None})
    return override(get_preset(arguments.preset), values)


def load_data(name: str, seed: int) -> "PairedData":
    """Paired data by name (`emoji`, `synthetic`), from an .npz file, or from other files that hold vectors.

    Args:
        name: what --data got.
        seed: of the split; the words of `emoji` are those of its training part.
    """
    if name == "emoji":
        from cmimh_tf.data.emoji import NUM_EMOJI, load_emoji
        from cmimh_tf.data.splits import make_splits

        return load_emoji(vocabulary_rows=make_splits(NUM_EMOJI, seed).train)
    if name == "synthetic":
        from cmimh_tf.data.synthetic import make_synthetic

        return make_synthetic(2000, seed=seed)
    if name.lower().endswith(".npz"):
        from cmimh_tf.data.files import load_npz

        return load_npz(name)
    from cmimh_tf.data.records import open_records
    from cmimh_tf.data.vector_pairs import load_vectors

    return load_vectors(open_records(name))


def metrics_table(metrics: dict[str, Any]) -> str:
    """The measures of the four tasks as a table for the screen, in percent."""
    from cmimh_tf.metrics.evaluation import TASKS

    named = {"map_at_50": "mAP@50", "map_at_1000": "mAP@1000", "map": "mAP"}
    recalls = {key: key.replace("recall_one_at_", "RecallOne@") for key in metrics if key.startswith("recall_one_at")}
    rows = {title: metrics[key] for key, title in {**named, **recalls}.items() if key in metrics}
    lines = [f"{metrics['code_length']} bits, in %" + "".join(f"{task:>16}" for task in TASKS)]
    width = len(lines[0]) - 16 * len(TASKS)
    for title, values in rows.items():
        cells = "".join(f"{100 * values[task]:16.1f}" if task in values else f"{'-':>16}" for task in TASKS)
        lines.append(f"{title:<{width}}{cells}")
    if "chance" in metrics:
        lines.append(f"chance: {100 * metrics['chance']:.1f}")
    else:
        lines.append("no labels: only RecallOne@k can be measured")
    return "\n".join(lines)
