"""Experiments that compare methods, under the paper's own protocol or in the setting of another paper."""

from collections.abc import Sequence

from cmimh_tf.experiments.experiment import Claim, Column, Experiment, PaperTable, Plot, Point, SplitSetting, Table
from cmimh_tf.experiments.options import ASYMMETRIC_CMIMH, CMIMH_METHOD, REAL_VALUED_CCA, Options
from cmimh_tf.experiments.plots import (
    precision_at_k_plot,
    precision_recall_plot,
    score_over_bits_plot,
    score_over_place_plot,
)
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, TASKS

_CODE_LENGTHS = (16, 32, 48)
_CODE_LENGTHS_OF_OTHERS = (16, 32, 64, 128)
_LARGE_DATA_SET = 100_000
_HANDCRAFTED_TRAIN = 20_000
_LDR_QUERIES = 1000
# The paper compares with DJSRH. The others are later methods that train on batches, too.
_TRAINING_SIZE_METHODS = ("DJSRH", "DGCPN", "CIRH", "UCCH", CMIMH_METHOD)
_TRAINING_SIZES, _QUICK_TRAINING_SIZES = (5000, 10_000, 20_000), (500, 1000)
_MEASURE_NAMES = {
    "map_at_1000": "mAP@1000",
    "map_at_50": "mAP@50",
    "map": "mAP over the whole database",
    "precision_at_100": "precision among the first 100",
}


def main(options: Options) -> Experiment:
    """mAP@1000 of all methods in four tasks at 16, 32 and 48 bits."""
    return _compare_methods(
        options,
        "main",
        "All methods, four tasks",
        "The paper's main table: mAP@1000 of all methods. Every method is fitted on the same training pairs.",
        _CODE_LENGTHS,
        options.split(),
        ["map_at_1000"],
    )


def curves(options: Options) -> Experiment:
    """Precision among the first k and precision over recall of all methods at 32 bits."""
    bits, split = options.code_lengths((32,)), options.split()
    methods = [name for name in options.chosen_methods() if name != REAL_VALUED_CCA]
    plots = [
        plot(task, length, methods)
        for length in bits
        for plot in (precision_at_k_plot, precision_recall_plot)
        for task in CROSS_MODAL_TASKS
    ]
    columns = task_columns("map_at_1000", TASKS, bits)
    table = Table("mAP@1000 in %", "method", methods, columns, paper=PaperTable("main", CMIMH_METHOD))
    lengths = ", ".join(map(str, bits))
    about = f"The paper's curves at {lengths} bits: precision among the first k, and precision over recall by radius."
    points = _method_points(options, methods, bits, split)
    return Experiment("curves", "Precision curves", about, points, [table], plots)


def map50(options: Options) -> Experiment:
    """mAP@50, as the paper compares with UDCMH."""
    split = options.split()
    about = (
        "The paper's table against UDCMH: mAP among the first 50. The split is that of the main table: "
        f"{options.data.query_count(split):,} queries, {split.num_train:,} training pairs."
    )
    return _compare_methods(
        options, "map50", "mAP@50, against UDCMH", about, _CODE_LENGTHS_OF_OTHERS, split, ["map_at_50"]
    )


def map_all(options: Options) -> Experiment:
    """mAP over the whole database, the setting of MGAH and UKD."""
    pairs = options.data.num_pairs
    share = 0.01 if pairs > _LARGE_DATA_SET else 0.05
    # More training pairs than there are means all.
    split = options.split(max(1, round(share * pairs)), pairs)
    about = (
        "The paper's table against MGAH and UKD: mAP over the whole database. 5 percent of the pairs are queries, or 1 "
        "percent of more than 100,000 as in NUS-WIDE, and all others are both training set and database: here "
        f"{options.data.query_count(split):,} queries, {split.num_train:,} training pairs."
    )
    return _compare_methods(
        options,
        "map-all",
        "mAP over all, the setting of MGAH and UKD",
        about,
        _CODE_LENGTHS_OF_OTHERS,
        split,
        ["map"],
    )


def handcrafted(options: Options) -> Experiment:
    """Handcrafted features, the setting of CRE and FSH; the data file provides the features."""
    split = options.split(num_train=_HANDCRAFTED_TRAIN)
    about = (
        "The paper's table against CRE and FSH, whose features are bags of SIFT words and tags. The features are those "
        "of the data file, so use one with such features. mAP over the whole database, precision among the first 100, "
        f"and mAP among the first 50. {options.data.query_count(split):,} queries, {split.num_train:,} training pairs."
    )
    return _compare_methods(
        options,
        "handcrafted",
        "Handcrafted features, the setting of CRE and FSH",
        about,
        _CODE_LENGTHS_OF_OTHERS,
        split,
        ["map", "precision_at_100", "map_at_50"],
    )


def recall_one(options: Options) -> Experiment:
    """RecallOne@1, 5, 10 among 1,000 queries, the setting of LDR."""
    bits = options.code_lengths(_CODE_LENGTHS_OF_OTHERS)
    queries = min(_LDR_QUERIES, options.data.num_pairs // 8)
    split = options.split(queries, options.data.num_pairs, queries)
    methods = [name for name in options.chosen_methods() if name != REAL_VALUED_CCA]
    tables = [
        Table(
            f"RecallOne@{k} in %",
            "method",
            _rows(options, methods),
            task_columns(f"recall_one_at_{k}", CROSS_MODAL_TASKS, bits),
            references=[ASYMMETRIC_CMIMH],
            paper=PaperTable("recall-one", CMIMH_METHOD),
        )
        for k in (1, 5, 10)
    ]
    about = (
        "The paper's table against LDR: the share of queries whose own pair is among the first k, searched among the "
        f"queries' pairs. {options.data.query_count(split):,} queries, {split.num_validation:,} further pairs kept "
        f"aside as validation pairs, training on {split.num_train:,} of the rest."
    )
    points = _method_points(options, _rows(options, methods), bits, split)
    plots = [score_over_bits_plot("recall_one_at_10", "RecallOne@10", bits, methods)]
    headline = tables[-1].columns
    return Experiment(
        "recall-one", "RecallOne@k, the setting of LDR", about, points, tables, plots, CMIMH_METHOD, headline
    )


def training_size(options: Options) -> Experiment:
    """5,000, 10,000 and 20,000 training pairs, against the other deep methods."""
    if options.num_train is not None:
        raise ValueError(
            f"`num_train` must not be given: training-size sets it itself. Received: num_train={options.num_train}."
        )
    bits = options.code_lengths((32,))
    rivals = options.methods if options.methods is not None else _TRAINING_SIZE_METHODS
    methods = [name for name in options.chosen_methods() if name in rivals]
    wanted = _QUICK_TRAINING_SIZES if options.quick else _TRAINING_SIZES
    # More than there are means all, so sizes beyond a small data set coincide.
    splits = list(dict.fromkeys(options.split(num_train=size) for size in wanted))
    points = [
        Point(method, {"bits": length, "train": split.num_train}, options.cell(method, length, seed, split))
        for split in splits
        for length in bits
        for seed in options.seed_range()
        for method in methods
    ]
    columns = [
        Column(
            f"{column.group}, {column.title}",
            f"{split.num_train:,} pairs",
            column.measure,
            {**column.place, "train": split.num_train},
        )
        for column in task_columns("map_at_1000", CROSS_MODAL_TASKS, bits)
        for split in splits
    ]
    least, most = splits[0].num_train, splits[-1].num_train
    missing = [f"{size:,}" for size in wanted if size > most]
    about = "The paper's comparison with DJSRH by the size of the training set, mAP@1000, with later methods added."
    if missing:
        about += f" There are {most:,} pairs to train on: that is the last size, for {' and '.join(missing)}."
    plots: list[Plot] = [
        score_over_place_plot(
            "map_at_1000", "mAP@1000", "train", [split.num_train for split in splits], "training pairs", length, methods
        )
        for length in bits
    ]
    claims = [
        Claim(
            "CMIMH gains from more training pairs.",
            [CMIMH_METHOD],
            [CMIMH_METHOD],
            task_columns("map_at_1000", CROSS_MODAL_TASKS, bits),
            {"train": most},
            {"train": least},
        )
    ]
    table = Table("mAP@1000 in %", "method", methods, columns, paper=PaperTable("training-size", CMIMH_METHOD))
    return Experiment(
        "training-size",
        "The size of the training set",
        about,
        points,
        [table],
        plots,
        CMIMH_METHOD,
        columns,
        claims if most > least else [],
    )


def task_columns(measure: str, tasks: Sequence[str], bits: Sequence[int], **place: str) -> list[Column]:
    """Columns by task and code length."""
    return [
        Column(task.replace("_", " "), f"{length} bits", f"{measure}.{task}", {"bits": length, **place})
        for task in tasks
        for length in bits
    ]


def _compare_methods(
    options: Options,
    name: str,
    title: str,
    about: str,
    usual_bits: Sequence[int],
    split: SplitSetting,
    measures: Sequence[str],
) -> Experiment:
    """All methods at each code length, one table per measure, columns by task and code length."""
    bits, methods = options.code_lengths(usual_bits), options.chosen_methods()
    tables = [
        Table(
            f"{_MEASURE_NAMES[measure]} in %",
            "method",
            _rows(options, methods),
            task_columns(measure, TASKS, bits),
            references=[REAL_VALUED_CCA, ASYMMETRIC_CMIMH],
            paper=PaperTable(name, CMIMH_METHOD),
        )
        for measure in measures
    ]
    headline = [column for column in tables[0].columns if column.measure.endswith(tuple(CROSS_MODAL_TASKS))]
    plots = [
        score_over_bits_plot(measure, _MEASURE_NAMES[measure], bits, methods)
        for measure in measures
    ]  # fmt: skip
    points = _method_points(options, _rows(options, methods), bits, split)
    return Experiment(name, title, about, points, tables, plots, CMIMH_METHOD, headline)


def _rows(options: Options, methods: Sequence[str]) -> list[str]:
    """The methods, and after CMIMH its other ranking if that is asked for."""
    reranked = options.rerank == "asymmetric" and CMIMH_METHOD in methods
    return [*methods, *([ASYMMETRIC_CMIMH] if reranked else [])]


def _method_points(options: Options, rows: Sequence[str], bits: Sequence[int], split: SplitSetting) -> list[Point]:
    def point(row: str, length: int, seed: int) -> Point:
        if row == ASYMMETRIC_CMIMH:
            return Point(row, {"bits": length}, options.cell(CMIMH_METHOD, length, seed, split), "asymmetric")
        return Point(row, {"bits": length}, options.cell(row, length, seed, split))

    return [point(row, length, seed) for seed in options.seed_range() for length in bits for row in rows]
