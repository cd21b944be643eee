"""Experiments in the settings of other papers, in which the paper compares with their published figures."""

from collections.abc import Sequence

from cmimh_tf.experiments.comparisons import TASK_NAMES, compare_methods, method_points
from cmimh_tf.experiments.experiment import Column, Experiment, Table
from cmimh_tf.experiments.methods import CMIMH_METHOD, REAL_VALUED_CCA
from cmimh_tf.experiments.options import Options
from cmimh_tf.experiments.pictures import score_over_bits_picture
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS

_LARGE_DATA_SET = 100_000
_CODE_LENGTHS = (16, 32, 64, 128)
_LDR_QUERIES = 1000


def map50(options: Options) -> Experiment:
    """mAP@50, the setting of UDCMH."""
    return _compare_with_share(
        options, "map50", "mAP@50, the setting of UDCMH", ["map_at_50"], "against UDCMH: mAP among the first 50"
    )


def map_all(options: Options) -> Experiment:
    """mAP over the whole database, the setting of MGAH and UKD."""
    return _compare_with_share(
        options,
        "map-all",
        "mAP over all, the setting of MGAH and UKD",
        ["map"],
        "against MGAH and UKD: mAP over the whole database",
    )


def handcrafted(options: Options) -> Experiment:
    """Features made by hand, the setting of CRE and FSH; the data file decides."""
    return compare_methods(
        options,
        "handcrafted",
        "Handcrafted features, the setting of CRE and FSH",
        "The paper's table against CRE and FSH, whose features are bags of SIFT words and tags or topics. The features "
        "are those of the data file: give one with such features. mAP over the whole database, and among the first 50.",
        options.code_lengths(_CODE_LENGTHS),
        options.split(),
        ["map", "map_at_50"],
    )


def recall_one(options: Options) -> Experiment:
    """RecallOne@1, 5, 10 among 1,000 queries, the setting of LDR."""
    bits = options.code_lengths(_CODE_LENGTHS)
    queries = min(_LDR_QUERIES, options.data.num_pairs // 8)
    split = options.split(queries, options.data.num_pairs, queries)
    methods = [name for name in options.chosen_methods() if name != REAL_VALUED_CCA]
    points = method_points(options, methods, bits, split)
    tables = [
        Table(
            f"RecallOne@{k} in %",
            "method",
            methods,
            [
                Column(TASK_NAMES[task], f"{length} bits", f"recall_one_at_{k}.{task}", {"bits": length})
                for task in CROSS_MODAL_TASKS
                for length in bits
            ],
            published="recall-one",
        )
        for k in (1, 5, 10)
    ]
    about = (
        "The paper's table against LDR: the share of queries whose own pair is among the first k, searched among the "
        f"queries' pairs. {options.data.query_count(split):,} queries, {split.num_validation:,} further pairs set "
        f"aside for validation and not used here, training on {split.num_train:,} of the rest."
    )
    headline = tables[-1].columns
    pictures = [score_over_bits_picture("recall_one_at_10", "RecallOne@10", bits, methods)]
    return Experiment(
        "recall-one", "RecallOne@k, the setting of LDR", about, points, tables, pictures, CMIMH_METHOD, headline
    )


def _compare_with_share(options: Options, name: str, title: str, measures: Sequence[str], what: str) -> Experiment:
    """A comparison whose queries are a share of the data: 5 percent, 1 of a large set, as these papers split."""
    pairs = options.data.num_pairs
    share = 0.01 if pairs > _LARGE_DATA_SET else 0.05
    split = options.split(max(1, round(share * pairs)))
    about = (
        f"The paper's table {what}. Such settings take 5 percent of the pairs as queries, or 1 percent of NUS-WIDE: "
        f"here {options.data.query_count(split):,} queries, {split.num_train:,} training pairs."
    )
    return compare_methods(options, name, title, about, options.code_lengths(_CODE_LENGTHS), split, measures)
