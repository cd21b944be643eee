"""The profile of a model's codes on some pairs, without labels, and the comparison of two profiles.

A training saves the profile of its held-out pairs beside the model. Later, the profile of new data is compared with it:
equal within the sampling error of both, or not. Each comparison is a two-sample test, see `compare_profiles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.codes import hamming_distance, pack_bits
from cmimh_tf.metrics.code_statistics import saturated_share
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, CodedItems
from cmimh_tf.metrics.neighbour_map import centred_cosines, nearest, neighbour_count, neighbour_map

PROFILE_FILE = "code_profile.json"
# More rows are sampled. They bound the cost, and the difference that can be seen.
PROFILE_ROWS = 2_000
# Rows per group: neighbour mAP depends on the size of the database, so it is measured in groups of one size.
GROUP_ROWS = 50
# How often data like those of training are reported as different.
FALSE_ALARM_RATE = 0.001
# A bit whose probability is this close to 0.5 may change with the smallest change of the input.
_UNDECIDED_WITHIN = 0.05
_MODALITIES = ("image", "text")
_KINDS = ("norm", "bits", "undecided", "shared_codes", "pair_distance", "neighbour_map")


def profile_codes(inputs: Mapping[str, np.ndarray], probs: Mapping[str, np.ndarray], seed: int = 0) -> dict[str, Any]:
    """Statistics of the encoders' inputs and outputs, over at most 2,000 rows chosen by `seed`.

    Args:
        inputs: for "image" and "text" [N, units], the scaled features that the encoders get.
        probs: for "image" and "text" [N, L], P(h = 1 | x).
        seed: of the sample and of the groups.

    Returns:
        JSON-ready. Means come with the standard deviation and the number of the values that they are the mean of.

            rows, code_length   how many rows and bits
            image, text         width    units
                                norm     Euclidean norm of a row
                                ones     for each bit, in how many of the rows it is 1
                                undecided     share of a row's probabilities within 0.05 of 0.5
                                saturated     share of all probabilities within 0.01 of 0 or 1
                                shared_codes  share of the rows of a group of 50 whose code occurs there again
            pair_distance       share of bits in which the codes of a pair differ
            stranger_distance   the same for an image and the text of another pair
            neighbour_map       in groups of 50: each half is searched in the other, see `neighbour_map`
    """
    order = np.random.default_rng([seed, 4]).permutation(len(inputs["image"]))[:PROFILE_ROWS]
    chosen = {name: np.asarray(inputs[name], np.float32)[order] for name in _MODALITIES}
    chosen_probs = {name: np.asarray(probs[name], np.float64)[order] for name in _MODALITIES}
    bits = {name: values >= 0.5 for name, values in chosen_probs.items()}
    codes = CodedItems(pack_bits(bits["image"]), pack_bits(bits["text"]))
    groups = [np.arange(start, start + GROUP_ROWS) for start in range(0, len(order) - GROUP_ROWS + 1, GROUP_ROWS)]
    profile: dict[str, Any] = {"rows": len(order), "code_length": bits["image"].shape[1]}
    for name in _MODALITIES:
        profile[name] = {
            "width": chosen[name].shape[1],
            "norm": _summary(np.linalg.norm(chosen[name], axis=1)),
            "ones": bits[name].sum(axis=0).tolist(),
            "undecided": _summary((np.abs(chosen_probs[name] - 0.5) < _UNDECIDED_WITHIN).mean(axis=1)),
            "saturated": saturated_share(chosen_probs[name]),
            "shared_codes": _summary([_shared(codes.codes(name)[group]) for group in groups]),
        }
    profile["pair_distance"] = _summary((bits["image"] != bits["text"]).mean(axis=1))
    profile["stranger_distance"] = _summary((bits["image"] != np.roll(bits["text"], 1, axis=0)).mean(axis=1))
    profile["neighbour_map"] = _summary([_group_neighbour_map(codes, chosen, group) for group in groups])
    return profile


@dataclass(frozen=True)
class Comparison:
    """One statistic of new data beside that of training.

    Attributes:
        kind: such as "norm" or "bits".
        modality: "image", "text", or "both".
        value: of the new data.
        reference: of training.
        p_value: how likely a difference like this is between two samples of the same data; None if not tested.
        differs: whether that is too unlikely.
        sentence: the comparison in words.
    """

    kind: str
    modality: str
    value: float
    reference: float
    p_value: float | None
    differs: bool
    sentence: str


def compare_profiles(reference: Mapping[str, Any], new: Mapping[str, Any]) -> list[Comparison]:
    """Tests whether new data have the profile of training.

    All tests together report a difference between samples of the same data once in 1,000 times (Bonferroni: each of the
    six kinds gets a sixth of that rate, and shares it between modalities and bits).

        norm                         Welch's t-test over rows, two-sided
        bits                         Fisher's exact test for each bit
        undecided, pair_distance     Welch's t-test over rows, one-sided: more than in training
        shared_codes                 Student's t-test over groups, one-sided: more than in training
        neighbour_map                Student's t-test over groups, one-sided: less than in training

    Args:
        reference: of `profile_codes`, saved by the training.
        new: of the same model on other rows.

    Raises:
        ValueError: if one of them has fewer than 50 rows, or the profiles are of different models.
    """
    for name, profile in (("reference", reference), ("new", new)):
        if profile["rows"] < GROUP_ROWS:
            raise ValueError(f"`{name}` must have at least {GROUP_ROWS} rows. Received: {profile['rows']}.")
    if reference["code_length"] != new["code_length"]:
        raise ValueError(
            "`reference` and `new` must be profiles of the same model. Received: codes of "
            f"{reference['code_length']} and {new['code_length']} bits."
        )
    rate = FALSE_ALARM_RATE / len(_KINDS)
    found = []
    for name in _MODALITIES:
        old, now = reference[name], new[name]
        found += [
            _compare("norm", name, old["norm"], now["norm"], "two-sided", rate / 2, "{name} inputs have a norm of"),
            _compare_bits(name, reference, new, rate / 2),
            _compare("undecided", name, old["undecided"], now["undecided"], "greater", rate / 2,
                     "the share of undecided {name} bits is"),
            _compare("shared_codes", name, old["shared_codes"], now["shared_codes"], "greater", rate / 2,
                     f"of {GROUP_ROWS} {{name}} codes, the share that occurs more than once is"),
        ]  # fmt: skip
    found.append(_compare("pair_distance", "both", reference["pair_distance"], new["pair_distance"], "greater", rate,
                          "the share of bits in which the codes of a pair differ is"))  # fmt: skip
    found.append(_compare("neighbour_map", "both", reference["neighbour_map"], new["neighbour_map"], "less", rate,
                          "neighbour mAP is"))  # fmt: skip
    return found


def pairs_are_strangers(profile: Mapping[str, Any]) -> bool:
    """Whether the codes of a pair are not nearer to each other than those of two pairs (Welch's t-test, 1 in 1,000)."""
    return not _t_test(profile["stranger_distance"], profile["pair_distance"], "less") < FALSE_ALARM_RATE


def _compare(
    kind: str, name: str, old: Mapping[str, Any], now: Mapping[str, Any], alternative: str, limit: float, words: str
) -> Comparison:
    sentence = f"{words.format(name=name)} {_figure(now['mean'])} ({_figure(old['mean'])} in training)"
    if min(old["count"], now["count"]) < 2:
        sentence += f", not tested: both need at least {2 * GROUP_ROWS} rows"
        return Comparison(kind, name, now["mean"] or 0.0, old["mean"] or 0.0, None, False, sentence)
    p_value = _t_test(old, now, alternative, equal_variances=kind in ("shared_codes", "neighbour_map"))
    return Comparison(kind, name, now["mean"], old["mean"], p_value, p_value < limit, sentence)


def _compare_bits(name: str, reference: Mapping[str, Any], new: Mapping[str, Any], limit: float) -> Comparison:
    """The bit that differs most, and how many differ."""
    from scipy.stats import fisher_exact

    rows = reference["rows"], new["rows"]
    ones = list(zip(reference[name]["ones"], new[name]["ones"], strict=True))
    p_values = [
        float(fisher_exact([[old, rows[0] - old], [now, rows[1] - now]]).pvalue) for old, now in ones
    ]  # fmt: skip
    differing = sum(p_value < limit / len(ones) for p_value in p_values)
    most = int(np.argmin(p_values))
    old, now = ones[most][0] / rows[0], ones[most][1] / rows[1]
    sentence = (
        f"{differing} of {len(ones)} {name} bits differ; bit {most}, which differs most, is 1 in {now:.0%} of the rows "
        f"({old:.0%} in training)"
    )
    return Comparison("bits", name, now, old, p_values[most], differing > 0, sentence)


def _t_test(
    old: Mapping[str, Any], now: Mapping[str, Any], alternative: str, *, equal_variances: bool = False
) -> float:
    """The probability of a difference in the direction of `alternative`, of `now` from `old`, by chance."""
    if old["deviation"] == now["deviation"] == 0:
        # Nothing varies: every difference is a real one.
        change = now["mean"] - old["mean"]
        is_change = {"greater": change > 0, "less": change < 0, "two-sided": change != 0}[alternative]
        return 0.0 if is_change else 1.0
    from scipy.stats import ttest_ind_from_stats

    now_values, old_values = ((part["mean"], part["deviation"], part["count"]) for part in (now, old))
    test = ttest_ind_from_stats(*now_values, *old_values, equal_var=equal_variances, alternative=alternative)
    return float(test.pvalue)


def _summary(values: Any) -> dict[str, float | int | None]:
    values = np.asarray(values, np.float64)
    count = len(values)
    return {
        "mean": float(values.mean()) if count else None,
        "deviation": float(values.std(ddof=1)) if count > 1 else None,
        "count": count,
    }


def _shared(codes: np.ndarray) -> float:
    distances = hamming_distance(codes, codes)
    return float(((distances == 0).sum(axis=1) > 1).mean())


def _group_neighbour_map(codes: CodedItems, inputs: Mapping[str, np.ndarray], group: np.ndarray) -> float:
    """Each half of the group is searched in the other half, in both cross-modal tasks."""
    half = len(group) // 2
    values = []
    for query, database in ((group[:half], group[half:]), (group[half:], group[:half])):
        image, text = (centred_cosines(inputs[name][query], inputs[name][database]) for name in _MODALITIES)
        relevant = nearest(image + text, neighbour_count(len(database)))
        asked, searched = (CodedItems(codes.image_codes[rows], codes.text_codes[rows]) for rows in (query, database))
        values += [neighbour_map(asked, searched, relevant, task) for task in CROSS_MODAL_TASKS]
    return float(np.mean(values))


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
