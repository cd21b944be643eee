"""RetrievalEvaluator: measures the new model, compares it with the blessed one, and decides whether to bless it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, Model, ModelBlessing, ModelEvaluation, ModelRun, TransformGraph
from tfx.utils import path_utils

from cmimh_tf.files import write_json, write_text
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, evaluate_retrieval
from cmimh_tf.training.evaluation import evaluate_model
from cmimh_tf.training.run_folder import load_model
from pipeline.components.pusher import METRICS_ASSET
from pipeline.evaluation_report import Evaluated, write_report
from pipeline.examples import DATABASE, QUERY, load_transformed, split_files
from pipeline.exported_model import hash_split
from pipeline.trainer import TRAIN_IDS_ASSET

_CURVES = ("precision_at_k", "precision_recall")
_RECALL_AT = 10


@component
def RetrievalEvaluator(
    examples: InputArtifact[Examples],
    transformed_examples: InputArtifact[Examples],
    transform_graph: InputArtifact[TransformGraph],
    model: InputArtifact[Model],
    model_run: InputArtifact[ModelRun],
    evaluation: OutputArtifact[ModelEvaluation],
    blessing: OutputArtifact[ModelBlessing],
    title: Parameter[str],
    seed: Parameter[int],
    min_lift: Parameter[float],
    min_score: Parameter[float],
    max_drop: Parameter[float],
    baseline_model: InputArtifact[Model] = None,
) -> None:
    """Writes metrics.json, curves.json, verdict.json and report.html, and the blessing.

    Args:
        examples: raw pairs; the blessed model is measured on them.
        transformed_examples: the new model is measured on them.
        transform_graph: the fitted preprocessing.
        model: the new model.
        model_run: the folder of its training.
        evaluation: the folder to write to.
        blessing: gets the properties that Pusher and Resolver read.
        title: the report's heading.
        seed: of the order of ties.
        min_lift: see `Thresholds`.
        min_score: see `Thresholds`.
        max_drop: see `Thresholds`.
        baseline_model: the latest blessed model, if there is one.
    """
    spec = tft.TFTransformOutput(transform_graph.uri).transformed_feature_spec()
    query, database = (
        load_transformed(split_files(transformed_examples.uri, split), spec) for split in (QUERY, DATABASE)
    )
    trained = load_model(model_run.uri)
    metrics = evaluate_model(trained, query, database, seed=seed)
    baseline: dict[str, Any] | None = None
    remarks: list[str] = []
    if baseline_model is not None:
        baseline, remarks = _measure_baseline(baseline_model, model, metrics, examples.uri, query.ids, seed)
    verdict = judge(metrics, baseline, Thresholds(min_lift, min_score, max_drop))

    folder = Path(evaluation.uri)
    figures = {name: value for name, value in metrics.items() if name not in _CURVES}
    write_json(folder / "metrics.json", figures)
    # Pusher copies it into the pushed model.
    write_json(Path(blessing.uri) / METRICS_ASSET, figures)
    write_json(folder / "curves.json", {name: metrics[name] for name in _CURVES if name in metrics})
    write_json(
        folder / "verdict.json",
        {
            "blessed": verdict.blessed,
            "reasons": [*verdict.reasons, *remarks],
            "score": verdict.score,
            "baseline_score": verdict.baseline_score,
        },
    )
    evaluated = Evaluated(
        title=title,
        model=trained,
        metrics=metrics,
        # Compared with itself, all differences would be 0.
        baseline=None if baseline is metrics else baseline,
        verdict=verdict,
        remarks=remarks,
        query=query,
        database=database,
        examples_uri=examples.uri,
        run_folder=Path(model_run.uri),
        seed=seed,
    )
    write_report(folder / "report.html", evaluated)
    _write_blessing(blessing, verdict, model, baseline_model)


@dataclass(frozen=True)
class Thresholds:
    """Limits on the score, which is the mean of image_to_text and text_to_image.

    Attributes:
        min_lift: the score must be at least this fraction of the way from chance to 1.
        min_score: the score must be at least this.
        max_drop: the score may be at most this much below that of the blessed model.
    """

    min_lift: float = 0.05
    min_score: float = 0.0
    max_drop: float = 0.005


@dataclass(frozen=True)
class Verdict:
    """Whether a model is blessed, with a sentence for each threshold.

    Attributes:
        blessed: whether the model meets all thresholds.
        reasons: the comparisons, in words.
        score: the model's score.
        baseline_score: the blessed model's score; None if there is no blessed model.
    """

    blessed: bool
    reasons: list[str]
    score: float
    baseline_score: float | None


def judge(metrics: dict[str, Any], baseline: dict[str, Any] | None, thresholds: Thresholds) -> Verdict:
    """Compares a model's metrics with the thresholds and with those of the blessed model.

    Args:
        metrics: of the model, from `evaluate_model`.
        baseline: of the blessed model on the same pairs; None if there is no blessed model.
        thresholds: the limits.
    """
    name, score, chance = _score_name(metrics), _score(metrics), _chance(metrics)
    floor = chance + thresholds.min_lift * (1 - chance)
    # With 10 queries or fewer, chance is 1, and no model can show that it learned anything.
    above_chance = score >= floor and chance < 1
    checks = [(above_chance, f"{name} {_percent(score)}", f"{_percent(floor)} (chance is {_percent(chance)})")]
    if thresholds.min_score:
        checks.append((score >= thresholds.min_score, f"{name} {_percent(score)}", _percent(thresholds.min_score)))
    baseline_score = None
    if baseline is not None:
        baseline_score = _score(baseline)
        least = baseline_score - thresholds.max_drop
        limit = f"{_percent(least)} (the blessed model's {_percent(baseline_score)} - {_percent(thresholds.max_drop)})"
        checks.append((score >= least, f"{name} {_percent(score)}", limit))
    reasons = [f"{what} is {'at least' if kept else 'below'} {limit}" for kept, what, limit in checks]
    if chance == 1:
        reasons[0] = f"{metrics['num_queries']} queries are too few: {name} is 100 for any model"
    if baseline is None:
        reasons.append("there is no blessed model to compare with")
    return Verdict(all(kept for kept, _, _ in checks), reasons, score, baseline_score)


def _score_name(metrics: dict[str, Any]) -> str:
    return "mAP@1000" if metrics["labels"] else f"RecallOne@{_RECALL_AT}"


def _score(metrics: dict[str, Any]) -> float:
    """The mean over the two cross-modal tasks: mAP@1000 with labels, RecallOne@10 without."""
    by_task = metrics["map_at_1000" if metrics["labels"] else f"recall_one_at_{_RECALL_AT}"]
    return sum(by_task[task] for task in CROSS_MODAL_TASKS) / len(CROSS_MODAL_TASKS)


def _chance(metrics: dict[str, Any]) -> float:
    """The approximate score of random codes."""
    return metrics["chance"] if metrics["labels"] else min(1.0, _RECALL_AT / metrics["num_queries"])


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _measure_baseline(
    baseline_model: Any, model: Any, metrics: dict[str, Any], examples_uri: str, query_ids: Any, seed: int
) -> tuple[dict[str, Any] | None, list[str]]:
    """The blessed model's metrics on the same pairs, with its own preprocessing; and remarks about them."""
    if baseline_model.id == model.id:
        return metrics, ["the blessed model is this one"]
    directory = Path(path_utils.serving_model_path(baseline_model.uri))
    try:
        query, database = (hash_split(directory, examples_uri, split) for split in (QUERY, DATABASE))
    except (OSError, ValueError, tf.errors.OpError) as error:
        # After the first line, TensorFlow's messages list nodes of the graph.
        reason = str(error).partition("\n")[0]
        return None, [f"the blessed model could not be measured on these data ({reason})"]
    seen = set(json.loads((directory / "assets.extra" / TRAIN_IDS_ASSET).read_text(encoding="utf-8")))
    remarks = []
    if seen.intersection(query_ids):
        remarks.append("the blessed model was trained on some of these queries, so its score is too high")
    return evaluate_retrieval(query, database, seed=seed), remarks


def _write_blessing(blessing: Any, verdict: Verdict, model: Any, baseline_model: Any) -> None:
    """Writes the same properties and file as TFX's own Evaluator."""
    write_text(Path(blessing.uri) / ("BLESSED" if verdict.blessed else "NOT_BLESSED"), "")
    blessing.set_int_custom_property("blessed", int(verdict.blessed))
    blessing.set_string_custom_property("current_model", model.uri)
    blessing.set_int_custom_property("current_model_id", model.id)
    if baseline_model is not None:
        blessing.set_string_custom_property("baseline_model", baseline_model.uri)
        blessing.set_int_custom_property("baseline_model_id", baseline_model.id)
