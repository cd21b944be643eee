"""RetrievalEvaluator: measures the new model, compares it with the blessed one, and decides whether to bless it."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, Model, ModelBlessing, ModelEvaluation, ModelRun, TransformGraph
from tfx.utils import path_utils

from cmimh_tf.data.pairs import PairedData
from cmimh_tf.files import write_json, write_text
from cmimh_tf.metrics.code_profile import PROFILE_FILE
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, evaluate_retrieval
from cmimh_tf.metrics.neighbour_map import estimate_quality
from cmimh_tf.training.evaluation import evaluate_model, features_of, profile_pairs
from cmimh_tf.training.run_folder import load_model
from pipeline.components.pusher import METRICS_ASSET
from pipeline.evaluation_report import Evaluated, write_report
from pipeline.examples import DATABASE, QUERY, load_transformed, split_files
from pipeline.exported_model import hash_split
from pipeline.trainer import TRAIN_IDS_ASSET

_CURVES = ("precision_at_k", "precision_recall")
# With so few queries, codes that learned nothing may look good.
_TOO_FEW_QUERIES = 10


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
    # Large vectors are read from these files, which are open and stay readable after the folder is gone.
    with TemporaryDirectory(prefix="cmimh-vectors-") as vectors:
        query, database = (
            load_transformed(split_files(transformed_examples.uri, split), spec, Path(vectors) / split)
            for split in (QUERY, DATABASE)
        )
    trained = load_model(model_run.uri)
    metrics = evaluate_model(trained, query, database, seed=seed)
    baseline: dict[str, Any] | None = None
    remarks: list[str] = []
    if baseline_model is not None:
        baseline, remarks = _measure_baseline(baseline_model, model, metrics, examples.uri, (query, database), seed)
    verdict = judge(metrics, baseline, Thresholds(min_lift, min_score, max_drop))

    folder = Path(evaluation.uri)
    figures = {name: value for name, value in metrics.items() if name not in _CURVES}
    write_json(folder / "metrics.json", figures)
    # Pusher copies both into the pushed model.
    write_json(Path(blessing.uri) / METRICS_ASSET, figures)
    write_json(Path(blessing.uri) / PROFILE_FILE, profile_pairs(trained, query, seed))
    write_json(folder / "curves.json", {name: metrics[name] for name in _CURVES if name in metrics})
    write_json(
        folder / "verdict.json",
        {
            "blessed": verdict.blessed,
            "reasons": [*verdict.reasons, *remarks],
            "score": verdict.score,
            "baseline_score": verdict.baseline_score,
            "neighbour_map": neighbour_score(metrics),
            "neighbour_map_chance": metrics["neighbour_map_chance"],
            "baseline_neighbour_map": None if baseline is None else neighbour_score(baseline),
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
    name = "mAP@1000" if metrics["labels"] else "neighbour mAP"
    score, chance = _score(metrics), metrics["chance" if metrics["labels"] else "neighbour_map_chance"]
    floor = chance + thresholds.min_lift * (1 - chance)
    enough = metrics["labels"] or metrics["num_queries"] > _TOO_FEW_QUERIES
    checks = [
        (
            score >= floor and chance < 1,
            f"{name} {_percent(score)}",
            f"{_percent(floor)} (chance is {_percent(chance)})",
        )
    ]
    if thresholds.min_score:
        checks.append((score >= thresholds.min_score, f"{name} {_percent(score)}", _percent(thresholds.min_score)))
    baseline_score = None
    if baseline is not None:
        baseline_score = _score(baseline)
        least = baseline_score - thresholds.max_drop
        limit = f"{_percent(least)} (the blessed model's {_percent(baseline_score)} - {_percent(thresholds.max_drop)})"
        checks.append((score >= least, f"{name} {_percent(score)}", limit))
    reasons = [f"{what} is {'at least' if kept else 'below'} {limit}" for kept, what, limit in checks]
    if not enough:
        reasons[0] = f"{metrics['num_queries']} queries are too few to judge a model without labels"
    if baseline is None:
        reasons.append("there is no blessed model to compare with")
    if metrics["labels"]:
        estimate, by_chance = _percent(neighbour_score(metrics)), _percent(metrics["neighbour_map_chance"])
        reasons.append(f"neighbour mAP, which needs no labels, is {estimate} (chance is {by_chance})")
    return Verdict(enough and all(kept for kept, _, _ in checks), reasons, score, baseline_score)


def neighbour_score(metrics: dict[str, Any]) -> float:
    """Neighbour mAP, the mean over the two cross-modal tasks."""
    return _mean_of_tasks(metrics["neighbour_map"])


def _score(metrics: dict[str, Any]) -> float:
    """mAP@1000 with labels, neighbour mAP without."""
    return _mean_of_tasks(metrics["map_at_1000"]) if metrics["labels"] else neighbour_score(metrics)


def _mean_of_tasks(by_task: dict[str, float]) -> float:
    return sum(by_task[task] for task in CROSS_MODAL_TASKS) / len(CROSS_MODAL_TASKS)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _measure_baseline(
    baseline_model: Any,
    model: Any,
    metrics: dict[str, Any],
    examples_uri: str,
    transformed: tuple[PairedData, PairedData],
    seed: int,
) -> tuple[dict[str, Any] | None, list[str]]:
    """The blessed model's metrics on the same pairs, with its own preprocessing; and remarks about them.

    Its neighbour mAP is by the features of the new model, `transformed`, so that both have the same neighbours.
    """
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
    ids = transformed[0].ids
    if ids is not None and seen.intersection(ids.tolist()):
        remarks.append("the blessed model was trained on some of these queries, so its score is too high")
    estimate = estimate_quality(query, database, *map(features_of, transformed), seed=seed)
    return evaluate_retrieval(query, database, seed=seed) | estimate, remarks


def _write_blessing(blessing: Any, verdict: Verdict, model: Any, baseline_model: Any) -> None:
    """Writes the same properties and file as TFX's own Evaluator."""
    write_text(Path(blessing.uri) / ("BLESSED" if verdict.blessed else "NOT_BLESSED"), "")
    blessing.set_int_custom_property("blessed", int(verdict.blessed))
    blessing.set_string_custom_property("current_model", model.uri)
    blessing.set_int_custom_property("current_model_id", model.id)
    if baseline_model is not None:
        blessing.set_string_custom_property("baseline_model", baseline_model.uri)
        blessing.set_int_custom_property("baseline_model_id", baseline_model.id)
