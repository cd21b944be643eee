"""Experiments on CMIMH itself: the two weight sweeps, `critic-inputs`, `independence` and `ablation`."""

from collections.abc import Mapping, Sequence
from typing import Any

from cmimh_tf.experiments.comparisons import TASK_NAMES
from cmimh_tf.experiments.experiment import Column, Experiment, Point, Table
from cmimh_tf.experiments.methods import STEP_TIME_METHOD
from cmimh_tf.experiments.options import Options
from cmimh_tf.experiments.pictures import probs_picture, score_over_place_picture
from cmimh_tf.metrics.evaluation import TASKS

_SWEEP_FACTORS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
_QUICK_FACTORS = (0.0, 0.5, 1.0, 2.0)
_SAMPLED_PAIRS = (1, 5, 10, 20)
_TERMS = {
    "MI": "loss.mutual_information_weight",
    "SKL": "loss.modality_gap_weight",
    "independence": "loss.independence_weight",
    "balance": "loss.balance_weight",
}
# The way from reconstruction alone to the full objective, and the full one without each of its terms.
ABLATION_TERMS: tuple[tuple[str, ...], ...] = (
    (),
    ("MI",),
    ("MI", "SKL"),
    ("MI", "SKL", "balance"),
    ("MI", "SKL", "independence"),
    ("MI", "independence", "balance"),
    ("SKL", "independence", "balance"),
    ("MI", "SKL", "independence", "balance"),
)


def mutual_information_weight(options: Options) -> Experiment:
    """Sensitivity to lambda 1."""
    return _sweep(options, "mutual-information-weight", "λ1", "loss.mutual_information_weight", "mutual information")


def modality_gap_weight(options: Options) -> Experiment:
    """Sensitivity to lambda 2."""
    return _sweep(options, "modality-gap-weight", "λ2", "loss.modality_gap_weight", "modality gap")


def critic_inputs(options: Options) -> Experiment:
    """The critic on probs, against 1, 5, 10 and 20 sampled pairs of codes."""
    bits = options.code_lengths((32,))
    samples = _SAMPLED_PAIRS[:2] if options.quick else _SAMPLED_PAIRS
    variants: dict[str, dict[str, Any]] = {"probs": {"loss.critic_inputs": "probs", "loss.critic_samples": 1}}
    for count in samples:
        name = f"{count} sampled pair{'s' if count > 1 else ''}"
        variants[name] = {"loss.critic_inputs": "codes", "loss.critic_samples": count}
    points = _variant_points(options, variants, bits)
    # The cost of a step does not depend on the seed: one is enough.
    points += [
        Point(
            name,
            {"bits": length, "what": "cost"},
            options.cmimh_cell(length, 0, options.split(), changes, STEP_TIME_METHOD),
        )
        for name, changes in variants.items()
        for length in bits
    ]
    columns = _task_columns(bits, what="quality")
    columns += [
        Column(
            "cost of a step", f"{length} bits", "relative_step_time", {"bits": length, "what": "cost"}, 1.0, 2, "min"
        )
        for length in bits
    ]
    about = (
        "What the critic of the mutual information bound sees: the probabilities of the bits, or sampled pairs of "
        "codes with straight-through gradients. mAP@1000, the time of a training step as a multiple of that on probs, "
        "and how decided the bits become."
    )
    pictures = [probs_picture(list(variants), length) for length in bits]
    table = Table("mAP@1000 in %, and the cost of a step", "critic inputs", list(variants), columns)
    return Experiment("critic-inputs", "What the critic sees", about, points, [table], pictures)


def independence(options: Options) -> Experiment:
    """With and without the total correlation term."""
    bits = options.code_lengths((16, 32, 48))
    _require_positive(options, "loss.independence_weight")
    variants: dict[str, dict[str, Any]] = {
        "without the independence term": {"loss.independence_weight": 0.0},
        "with it": {},
    }
    statistics = [
        Column(
            f"{title}, {modality}", f"{length} bits", f"{path}.{modality}{tail}", {"bits": length}, scale, digits, "min"
        )
        for title, path, tail, scale, digits in (
            ("TC in nats", "probed_total_correlation", "", 1.0, 2),
            ("correlation MSE in 1/1000", "code_statistics", ".correlation_mse", 1000.0, 1),
        )
        for modality in ("image", "text")
        for length in bits
    ]
    tables = [
        Table("Dependence of the bits, less is better", "variant", list(variants), statistics),
        Table("mAP@1000 in %", "variant", list(variants), _task_columns(bits)),
    ]
    about = (
        "The objective with and without the independence term. TC is the total correlation as a discriminator sees it "
        "that was trained after the model on its frozen probabilities of database items, the same for both variants; "
        "correlation MSE is the mean squared correlation of two bits of the codes."
    )
    points = _variant_points(options, variants, bits)
    return Experiment("independence", "The independence term", about, points, tables)


def ablation(options: Options) -> Experiment:
    """Eight combinations of the four terms on top of reconstruction."""
    bits = options.code_lengths((32, 48))
    for key in _TERMS.values():
        _require_positive(options, key)
    variants = {_ablation_name(terms): _without(terms) for terms in ABLATION_TERMS}
    about = (
        "Reconstruction alone, the terms added one after the other (MI: mutual information of the codes, SKL: modality "
        "gap, independence, balance), and the full objective without each of them; mAP@1000. Everything else is as in "
        "the base configuration."
    )
    if options.base.loss.cross_reconstruction_weight:
        about += (
            " The base reconstructs each modality from the other's codes too, which ties them even without MI and SKL."
        )
    table = Table("mAP@1000 in %", "terms besides reconstruction", list(variants), _task_columns(bits))
    return Experiment(
        "ablation", "The terms of the objective", about, _variant_points(options, variants, bits), [table]
    )


def _sweep(options: Options, name: str, symbol: str, key: str, what: str) -> Experiment:
    """One weight at multiples of its value in the base configuration, which is thus among them."""
    bits = options.code_lengths((32,))
    base = _require_positive(options, key)
    values = [factor * base for factor in (_QUICK_FACTORS if options.quick else _SWEEP_FACTORS)]
    rows = [f"{symbol} = {value:g}" for value in values]
    split = options.split()
    points = [
        Point(row, {"bits": length, "weight": value}, options.cmimh_cell(length, seed, split, {key: value}))
        for row, value in zip(rows, values, strict=True)
        for length in bits
        for seed in options.seed_range()
    ]
    about = (
        f"Sensitivity to {symbol}, the weight of the {what} term, around its value in the base configuration, "
        f"{base:g}; all else stays. mAP@1000."
    )
    pictures = [
        score_over_place_picture("map_at_1000", "mAP@1000", "weight", values, symbol, length, [None]) for length in bits
    ]
    table = Table("mAP@1000 in %", "weight", rows, _task_columns(bits))
    return Experiment(name, f"Sensitivity to {symbol}", about, points, [table], pictures)


def _variant_points(options: Options, variants: Mapping[str, Mapping[str, Any]], bits: Sequence[int]) -> list[Point]:
    split = options.split()
    return [
        Point(name, {"bits": length, "what": "quality"}, options.cmimh_cell(length, seed, split, changes))
        for seed in options.seed_range()
        for length in bits
        for name, changes in variants.items()
    ]


def _require_positive(options: Options, key: str) -> float:
    """A weight of the base configuration; without it, variants that differ in it would be the same."""
    section, _, field = key.partition(".")
    base = float(getattr(getattr(options.base, section), field))
    if not base:
        raise ValueError(f"`{key}` must be positive in the base configuration of this experiment. Received: {base}.")
    return base


def _task_columns(bits: Sequence[int], **place: str) -> list[Column]:
    return [
        Column(TASK_NAMES[task], f"{length} bits", f"map_at_1000.{task}", {"bits": length, **place})
        for task in TASKS
        for length in bits
    ]


def _ablation_name(terms: Sequence[str]) -> str:
    return " + ".join(terms) if terms else "none"


def _without(terms: Sequence[str]) -> dict[str, float]:
    """Sets the weights of all terms but these to 0."""
    return {key: 0.0 for term, key in _TERMS.items() if term not in terms}
