"""Experiments on CMIMH itself: the two weight sweeps, `critic-inputs`, `independence` and `ablation`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cmimh_tf.experiments.comparisons import task_columns
from cmimh_tf.experiments.experiment import Claim, Column, Experiment, PaperTable, Point, Table
from cmimh_tf.experiments.options import STEP_TIME_METHOD, Options
from cmimh_tf.experiments.plots import probs_plot, score_over_place_plot
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, TASKS

_SWEEP_FACTORS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
_QUICK_FACTORS = (0.0, 0.5, 1.0, 2.0)
_SAMPLED_PAIRS = (1, 5, 10, 20)
# The terms of the ablation, besides reconstruction, and how the paper's table abbreviates them.
_TERMS = {"mutual_information": "I", "modality_gap": "SKL", "independence": "ind", "balance": "bal"}
# The eight rows of the paper's table, in its order.
ABLATION_TERMS: tuple[tuple[str, ...], ...] = (
    ("mutual_information",),
    ("modality_gap",),
    ("mutual_information", "independence", "balance"),
    ("modality_gap", "independence", "balance"),
    ("mutual_information", "modality_gap"),
    ("mutual_information", "modality_gap", "independence"),
    ("mutual_information", "modality_gap", "balance"),
    ("mutual_information", "modality_gap", "independence", "balance"),
)


def mutual_information_weight(options: Options) -> Experiment:
    """Sensitivity to lambda 1."""
    return _sweep(
        options,
        "mutual-information-weight",
        "λ1",
        "mutual_information",
        [
            ("λ1 of at most 0.1 is worse than λ1 from 1 to 4 in all four tasks.", _from(1, 4), _from(0, 0.1), TASKS),
            ("λ1 of 5 or more is slightly worse than λ1 from 1 to 4.", _from(1, 4), _from(5), TASKS),
        ],
    )


def modality_gap_weight(options: Options) -> Experiment:
    """Sensitivity to lambda 2."""
    return _sweep(
        options,
        "modality-gap-weight",
        "λ2",
        "modality_gap",
        [
            (
                "λ2 below 0.5 is worse than λ2 from 0.5 to 2 across modalities.",
                _from(0.5, 2),
                lambda value: value < 0.5,
                CROSS_MODAL_TASKS,
            ),
            ("λ2 of 5 or more is worse than λ2 from 0.5 to 2 in all four tasks.", _from(0.5, 2), _from(5), TASKS),
        ],
    )


def critic_inputs(options: Options) -> Experiment:
    """The critic on probs, against 1, 5, 10 and 20 sampled pairs of codes."""
    bits = options.code_lengths((32,))
    samples = _SAMPLED_PAIRS[:2] if options.quick else _SAMPLED_PAIRS
    on_probs = options.base.loss.critic_inputs.replace("codes", "probs")
    variants: dict[str, dict[str, Any]] = {"probs": {"loss.critic_inputs": on_probs, "loss.critic_samples": 1}}
    names_in_paper = {"probs": "probs"}
    for count in samples:
        name = f"{count} sampled pair{'s' if count > 1 else ''}"
        variants[name] = {"loss.critic_inputs": sampled_inputs(on_probs), "loss.critic_samples": count}
        names_in_paper[name] = f"codes x{count}"
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
    columns = task_columns("map_at_1000", TASKS, bits, what="quality")
    columns += [
        Column(
            "image probs below 0.01 or above 0.99",
            f"{length} bits",
            "code_statistics.image.saturated_share",
            {"bits": length, "what": "quality"},
            best=None,
            paper_measure="share of image probs in [0,0.01] or [0.99,1].-",
        )
        for length in bits
    ]
    columns += [
        Column("cost per step", f"{length} bits", "relative_step_time", {"bits": length, "what": "cost"}, 1.0, 2, "min")
        for length in bits
    ]
    about = (
        "The input of the critic in the bound of the mutual information: the probabilities of the bits, or sampled "
        "pairs of codes with straight-through gradients. mAP@1000, the share of image bits that are almost certain, "
        "and the time of a training step as a multiple of that on probs."
    )
    claim = Claim(
        "The critic on probs gives better codes than on sampled pairs, however many.",
        ["probs"],
        [name for name in variants if name != "probs"],
        task_columns("map_at_1000", CROSS_MODAL_TASKS, bits, what="quality"),
    )
    table = Table(
        "mAP@1000 in %, and the cost per step",
        "critic inputs",
        list(variants),
        columns,
        paper=PaperTable("critic-inputs", "probs", names_in_paper),
    )
    plots = [probs_plot(list(variants), length) for length in bits]
    return Experiment("critic-inputs", "The input of the critic", about, points, [table], plots, claims=[claim])


def independence(options: Options) -> Experiment:
    """With and without the independence term."""
    bits = options.code_lengths((16, 32, 48))
    _base_weight(options, "independence")
    without, with_term = "without the independence term", "with it"
    variants: dict[str, dict[str, Any]] = {without: {"loss.independence_weight": 0.0}, with_term: {}}
    paper = PaperTable("independence", without, {without: "without", with_term: "with"})
    total_correlation, correlations = (
        [
            Column(
                f"{title}, {modality}",
                f"{length} bits",
                path.format(modality),
                {"bits": length},
                scale,
                digits,
                "min",
                paper_measure=f"{name}.{modality}",
            )
            for modality in ("image", "text")
            for length in bits
        ]
        for title, path, scale, digits, name in (
            ("TC in nats", "probed_total_correlation.{}", 1.0, 2, "total_correlation"),
            ("correlation MSE in 1/1000", "code_statistics.{}.correlation_mse", 1000.0, 1, "correlation_mse"),
        )
    )
    scores = task_columns("map_at_1000", TASKS, bits)
    tables = [
        Table(
            "Dependence of the bits, less is better",
            "variant",
            list(variants),
            [*total_correlation, *correlations],
            paper=paper,
        ),
        Table("mAP@1000 in %", "variant", list(variants), scores, paper=paper),
    ]
    about = (
        "The objective with and without the independence term. TC is the total correlation estimated by a "
        "discriminator that is trained after the model, on its frozen probabilities of database items, in the same "
        "way for both variants. Correlation MSE is the mean squared correlation of two bits of the codes."
    )
    across = task_columns("map_at_1000", CROSS_MODAL_TASKS, bits)
    claims = [
        Claim("The independence term lowers the correlation MSE.", [with_term], [without], correlations),
        Claim("The independence term lowers the total correlation.", [with_term], [without], total_correlation),
        Claim("The independence term raises mAP across modalities.", [with_term], [without], across),
    ]
    points = _variant_points(options, variants, bits)
    return Experiment("independence", "The independence term", about, points, tables, claims=claims)


def ablation(options: Options) -> Experiment:
    """The paper's eight combinations of the four terms on top of reconstruction."""
    bits = options.code_lengths((32, 48))
    for term in _TERMS:
        _base_weight(options, term)
    variants = {ablation_row(terms): without_others(terms) for terms in ABLATION_TERMS}
    about = (
        "The paper's eight combinations of the terms besides reconstruction; mAP@1000. Everything else is as in the "
        "base configuration."
    )
    if options.base.loss.cross_reconstruction_weight:
        about += (
            " The base configuration also reconstructs each modality from the codes of the other. This aligns the "
            "modalities even without mutual information and modality gap."
        )
    full = ablation_row(ABLATION_TERMS[-1])
    across = task_columns("map_at_1000", CROSS_MODAL_TASKS, bits)
    claims = [
        Claim(f"Without the {missing}, mAP across modalities drops.", [full], [ablation_row(terms)], across)
        for missing, terms in (("mutual information", ABLATION_TERMS[3]), ("modality gap", ABLATION_TERMS[2]))
    ]
    claims.append(
        Claim(
            "Independence and balance raise mAP across modalities.",
            [full],
            [ablation_row(terms) for terms in ABLATION_TERMS[4:7]],
            across,
        )
    )
    table = Table(
        "mAP@1000 in %",
        "terms besides reconstruction",
        list(variants),
        task_columns("map_at_1000", TASKS, bits),
        paper=ablation_in_paper(),
    )
    points = _variant_points(options, variants, bits)
    return Experiment("ablation", "The terms of the objective", about, points, [table], claims=claims)


def _sweep(
    options: Options,
    name: str,
    symbol: str,
    term: str,
    claims: Sequence[tuple[str, Callable[[float], bool], Callable[[float], bool], Sequence[str]]],
) -> Experiment:
    """One weight at multiples of its value in the base configuration, which is one of them.

    Args:
        options: the user's choices.
        name: of the experiment.
        symbol: of the weight in the paper.
        term: its name in the configuration.
        claims: for each claim its text, the ranges of the better and the worse weights, and the tasks.
    """
    bits = options.code_lengths((32,))
    base = _base_weight(options, term)
    values = [factor * base for factor in (_QUICK_FACTORS if options.quick else _SWEEP_FACTORS)]
    rows = {f"{symbol} = {value:g}": value for value in values}
    split = options.split()
    points = [
        Point(
            row,
            {"bits": length, "weight": value},
            options.cmimh_cell(length, seed, split, {f"loss.{term}_weight": value}),
        )
        for row, value in rows.items()
        for length in bits
        for seed in options.seed_range()
    ]
    about = (
        f"Sensitivity to {symbol}, the weight of the term {term.replace('_', ' ')}, around its value in the base "
        f"configuration, {base:g}. Everything else is as in the base configuration. mAP@1000."
    )
    plots = [
        score_over_place_plot("map_at_1000", "mAP@1000", "weight", values, symbol, length, [None]) for length in bits
    ]
    table = Table("mAP@1000 in %", "weight", list(rows), task_columns("map_at_1000", TASKS, bits))
    checked = [
        Claim(
            text,
            [row for row, value in rows.items() if is_better(value)],
            [row for row, value in rows.items() if is_worse(value)],
            task_columns("map_at_1000", tasks, bits),
        )
        for text, is_better, is_worse, tasks in claims
    ]
    return Experiment(name, f"Sensitivity to {symbol}", about, points, [table], plots, claims=checked)


def _from(least: float, most: float = float("inf")) -> Callable[[float], bool]:
    return lambda value: least <= value <= most


def _variant_points(options: Options, variants: Mapping[str, Mapping[str, Any]], bits: Sequence[int]) -> list[Point]:
    split = options.split()
    return [
        Point(name, {"bits": length, "what": "quality"}, options.cmimh_cell(length, seed, split, changes))
        for seed in options.seed_range()
        for length in bits
        for name, changes in variants.items()
    ]


def _base_weight(options: Options, term: str) -> float:
    """The weight of a term in the base configuration. It must be positive, or variants without it would be the same."""
    base = float(getattr(options.base.loss, f"{term}_weight"))
    if not base:
        raise ValueError(
            f"`loss.{term}_weight` must be positive in the base configuration of this experiment. Received: {base}."
        )
    return base


def ablation_in_paper() -> PaperTable:
    """The paper's table, with its name of each of our rows."""
    names = {ablation_row(terms): " ".join(_TERMS[term] for term in terms) for terms in ABLATION_TERMS}
    return PaperTable("ablation", ablation_row(ABLATION_TERMS[-1]), names)


def ablation_row(terms: Sequence[str]) -> str:
    """The label of a combination of terms."""
    return "all four" if len(terms) == len(_TERMS) else " + ".join(term.replace("_", " ") for term in terms)


def sampled_inputs(critic_inputs: str) -> str:
    """The setting for sampled codes in the place of probs, in the same range: from 0 to 1, or signed, from -1 to 1."""
    return critic_inputs.replace("probs", "codes")


def without_others(terms: Sequence[str]) -> dict[str, float]:
    """Sets the weights of all other terms to 0."""
    return {f"loss.{term}_weight": 0.0 for term in _TERMS if term not in terms}
