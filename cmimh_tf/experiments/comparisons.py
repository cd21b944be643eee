"""Experiments that compare methods under the paper's own protocol: `main`, `curves`, `training-size`."""

from collections.abc import Sequence

from cmimh_tf.experiments.cell import Cell, SplitSetting
from cmimh_tf.experiments.experiment import Column, Experiment, Point, Table
from cmimh_tf.experiments.methods import CMIMH_METHOD, REAL_VALUED_CCA
from cmimh_tf.experiments.options import Options
from cmimh_tf.experiments.pictures import (
    precision_at_k_picture,
    precision_recall_picture,
    score_over_bits_picture,
    score_over_place_picture,
)
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, TASKS

TASK_NAMES = {
    "image_to_text": "image to text",
    "text_to_image": "text to image",
    "image_to_image": "image to image",
    "text_to_text": "text to text",
}
_MEASURE_NAMES = {"map_at_1000": "mAP@1000", "map_at_50": "mAP@50", "map": "mAP over the whole database"}


def main(options: Options) -> Experiment:
    """mAP@1000 of all methods in four tasks at 16, 32 and 48 bits."""
    bits, split = options.code_lengths((16, 32, 48)), options.split()
    return compare_methods(
        options,
        "main",
        "All methods, four tasks",
        "The paper's main table: mAP@1000 of all methods. Every method is fitted on the same training pairs.",
        bits,
        split,
        ["map_at_1000"],
    )


def curves(options: Options) -> Experiment:
    """Precision among the first k and precision over recall of all methods at 32 bits."""
    bits, split = options.code_lengths((32,)), options.split()
    methods = [name for name in options.chosen_methods() if name != REAL_VALUED_CCA]
    points = method_points(options, methods, bits, split)
    pictures = [
        picture(task, length, methods)
        for length in bits
        for picture in (precision_at_k_picture, precision_recall_picture)
        for task in CROSS_MODAL_TASKS
    ]
    columns = [
        Column(TASK_NAMES[task], f"{length} bits", f"map_at_1000.{task}", {"bits": length})
        for task in TASKS
        for length in bits
    ]
    table = Table("mAP@1000 in %", "method", methods, columns)
    lengths = ", ".join(map(str, bits))
    about = f"The paper's curves at {lengths} bits: precision among the first k, and precision over recall by radius."
    return Experiment("curves", "Precision curves", about, points, [table], pictures)


def training_size(options: Options) -> Experiment:
    """5,000, 10,000 and 20,000 training pairs, against DJSRH."""
    if options.num_train is not None:
        raise ValueError(
            f"`num_train` must not be given: training-size sets it itself. Received: num_train={options.num_train}."
        )
    bits = options.code_lengths((32,))
    rivals = options.methods if options.methods is not None else ("DJSRH", CMIMH_METHOD)
    methods = [name for name in options.chosen_methods() if name in rivals]
    wanted = (500, 1000) if options.quick else (5000, 10_000, 20_000)
    # More than there are means all, so that sizes beyond a small data set fall together.
    splits = list(dict.fromkeys(options.split(num_train=size) for size in wanted))
    points = [
        Point(method, {"bits": length, "train": split.num_train}, _cell(options, method, length, seed, split))
        for split in splits
        for length in bits
        for seed in options.seed_range()
        for method in methods
    ]
    columns = [
        Column(
            f"{TASK_NAMES[task]}, {length} bits",
            f"{split.num_train:,} pairs",
            f"map_at_1000.{task}",
            {"bits": length, "train": split.num_train},
        )
        for task in CROSS_MODAL_TASKS
        for length in bits
        for split in splits
    ]
    most = splits[-1].num_train
    missing = [f"{size:,}" for size in wanted if size > most]
    about = "The paper's comparison with DJSRH by the size of the training set, mAP@1000."
    if missing:
        about += f" There are {most:,} pairs to train on: that is the last size, for {' and '.join(missing)}."
    pictures = [
        score_over_place_picture(
            "map_at_1000", "mAP@1000", "train", [split.num_train for split in splits], "training pairs", length, methods
        )
        for length in bits
    ]
    return Experiment(
        "training-size",
        "The size of the training set",
        about,
        points,
        [Table("mAP@1000 in %", "method", methods, columns)],
        pictures,
        CMIMH_METHOD,
        columns,
    )


def compare_methods(
    options: Options,
    name: str,
    title: str,
    about: str,
    bits: Sequence[int],
    split: SplitSetting,
    measures: Sequence[str],
) -> Experiment:
    """All methods at each code length, a table a measure, columns by task and code length."""
    methods = options.chosen_methods()
    tables = [
        Table(
            f"{_MEASURE_NAMES[measure]} in %",
            "method",
            methods,
            [
                Column(TASK_NAMES[task], f"{length} bits", f"{measure}.{task}", {"bits": length})
                for task in TASKS
                for length in bits
            ],
            references=[REAL_VALUED_CCA],
            published=name,
        )
        for measure in measures
    ]
    headline = [column for column in tables[0].columns if column.measure.endswith(tuple(CROSS_MODAL_TASKS))]
    pictures = [score_over_bits_picture(measure, _MEASURE_NAMES[measure], bits, methods) for measure in measures]
    points = method_points(options, methods, bits, split)
    return Experiment(name, title, about, points, tables, pictures, CMIMH_METHOD, headline)


def method_points(options: Options, methods: Sequence[str], bits: Sequence[int], split: SplitSetting) -> list[Point]:
    return [
        Point(method, {"bits": length}, _cell(options, method, length, seed, split))
        for seed in options.seed_range()
        for length in bits
        for method in methods
    ]


def _cell(options: Options, method: str, bits: int, seed: int, split: SplitSetting) -> Cell:
    if method == CMIMH_METHOD:
        return options.cmimh_cell(bits, seed, split)
    return options.baseline_cell(method, bits, seed, split)
