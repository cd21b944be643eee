"""When a model is blessed: it must beat chance, and not fall behind the blessed one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS

_WITH_LABELS = "map_at_1000"
_WITHOUT_LABELS = "recall_one_at_10"
_RECALLED = 10


@dataclass(frozen=True)
class Thresholds:
    """Limits on the score, which is the mean of image_to_text and text_to_image.

    Attributes:
        least_lift: the score must be at least this share of the way from chance to 1.
        least_score: the score must be at least this.
        most_drop: the score may be at most this much below that of the blessed model.
    """

    least_lift: float = 0.05
    least_score: float = 0.0
    most_drop: float = 0.005


@dataclass(frozen=True)
class Verdict:
    """Whether a model is blessed, and a sentence for each threshold.

    Attributes:
        blessed: whether all thresholds are kept.
        reasons: what was compared, in words.
        score: of the model.
        baseline_score: of the blessed model, None if there is none.
    """

    blessed: bool
    reasons: list[str]
    score: float
    baseline_score: float | None


def score_name(metrics: dict[str, Any]) -> str:
    """What the score is: mAP@1000 with labels, RecallOne@10 without."""
    return "mAP@1000" if metrics["labels"] else f"RecallOne@{_RECALLED}"


def score_of(metrics: dict[str, Any]) -> float:
    """The mean over the two cross-modal tasks of the measure that decides."""
    by_task = metrics[_WITH_LABELS if metrics["labels"] else _WITHOUT_LABELS]
    return sum(by_task[task] for task in CROSS_MODAL_TASKS) / len(CROSS_MODAL_TASKS)


def chance_of(metrics: dict[str, Any]) -> float:
    """About what random codes score."""
    return metrics["chance"] if metrics["labels"] else min(1.0, _RECALLED / metrics["num_queries"])


def judge(metrics: dict[str, Any], baseline: dict[str, Any] | None, thresholds: Thresholds) -> Verdict:
    """Compares a model's measures with the thresholds and with those of the blessed model.

    Args:
        metrics: of the model, from `evaluate_model`.
        baseline: of the blessed model on the same pairs; None if there is none.
        thresholds: the limits.
    """
    name, score, chance = score_name(metrics), score_of(metrics), chance_of(metrics)
    floor = chance + thresholds.least_lift * (1 - chance)
    # Where chance finds all, as among 10 pairs or fewer, no model can show that it learned anything.
    above_chance = score >= floor and chance < 1
    checks = [(above_chance, f"{name} {_percent(score)}", f"{_percent(floor)}, {_percent(chance)} being chance")]
    if thresholds.least_score:
        checks.append((score >= thresholds.least_score, f"{name} {_percent(score)}", _percent(thresholds.least_score)))
    baseline_score = None
    if baseline is not None:
        baseline_score = score_of(baseline)
        least = baseline_score - thresholds.most_drop
        checks.append((score >= least, f"{name} {_percent(score)}", f"{_percent(least)}, the blessed model's "
                       f"{_percent(baseline_score)} less {_percent(thresholds.most_drop)}"))  # fmt: skip
    reasons = [f"{what} is {'at least' if kept else 'below'} {limit}" for kept, what, limit in checks]
    if chance == 1:
        reasons[0] = f"{metrics['num_queries']} queries are too few to judge by {name}, which is 100 for any model"
    if baseline is None:
        reasons.append("there is no blessed model to compare with")
    return Verdict(all(kept for kept, _, _ in checks), reasons, score, baseline_score)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"
