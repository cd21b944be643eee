"""Where the contender is first, and by how much: computed from the results, never written by hand."""

from collections.abc import Sequence

from cmimh_tf.experiments.experiment import Column
from cmimh_tf.experiments.results import Results, Summary


def describe_standing(results: Results) -> list[str]:
    """Sentences on the experiment's contender in each headline column.

    It is first by at least one deviation where its mean exceeds every rival's by the larger of both sample
    standard deviations. References (upper bounds) are no rivals.

    Args:
        results: of an experiment.

    Returns:
        A line of verdict and one for each column in which it is not clearly first; empty without a contender.
    """
    experiment = results.experiment
    contender = experiment.contender
    if contender is None:
        return []
    references = {row for table in experiment.tables for row in table.references}
    rivals = list(dict.fromkeys(p.row for p in experiment.points if p.row != contender and p.row not in references))
    clear, judged, exceptions = 0, 0, []
    for column in experiment.headline:
        own = results.column_summary(contender, column)
        others = {row: summary for row in rivals if (summary := results.column_summary(row, column)) is not None}
        if own is None or not others:
            continue
        judged += 1
        by_mean = sorted(others, key=lambda row: others[row].mean, reverse=True)
        doubts = [(row, verdict) for row in by_mean if (verdict := _compare(own, others[row])) is not None]
        if doubts:
            rival, verdict = doubts[0]
            exceptions.append(_exception(contender, rival, own, others[rival], column, verdict))
        else:
            clear += 1
    if not judged:
        return []
    return [f"{contender} is first by at least one deviation in {clear} of {judged} cross-modal cells.", *exceptions]


def _compare(own: Summary, other: Summary) -> str | None:
    """None if `own` is first by at least one deviation, else in words what it is."""
    difference = own.mean - other.mean
    if difference <= 0:
        return "not first"
    if own.missing or other.missing:
        return "first, with seeds missing"
    if own.deviation is None or other.deviation is None:
        return "first, with one seed and so no deviation"
    return None if difference >= max(own.deviation, other.deviation) else "first by less than one deviation"


def _exception(contender: str, rival: str, own: Summary, other: Summary, column: Column, verdict: str) -> str:
    means: Sequence[str] = [
        f"{row} {format_summary(summary, column.scale, column.digits)}"
        for row, summary in ((contender, own), (rival, other))
    ]
    return f"{column.group}, {column.title}: {verdict} ({', '.join(means)})."


def format_summary(summary: Summary, scale: float, digits: int) -> str:
    """ "81.7 ± 0.5", or "81.7" for one seed; "81.7 ± 0.5 (2 of 3 seeds)" where some have no result."""
    text = f"{scale * summary.mean:.{digits}f}"
    if summary.deviation is not None:
        text += f" ± {scale * summary.deviation:.{digits}f}"
    if summary.missing:
        text += f" ({summary.count} of {summary.count + summary.missing} seeds)"
    return text
