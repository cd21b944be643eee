"""RetrievalEvaluator: measures the new model, compares it with the blessed one, and blesses it or not."""

import json
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, Model, ModelBlessing, ModelEvaluation, ModelRun, TransformGraph
from tfx.utils import path_utils

from cmimh_tf.atomic import write_json, write_text
from cmimh_tf.metrics.evaluation import evaluate_retrieval
from cmimh_tf.training.evaluation import evaluate_model
from cmimh_tf.training.run_folder import load_model
from pipeline.components.atomic_pusher import METRICS_ASSET
from pipeline.evaluation_report import Evaluated, write_report
from pipeline.examples import load_transformed, split_files
from pipeline.features import DATABASE, QUERY
from pipeline.saved_model_hashing import hash_split
from pipeline.thresholds import Thresholds, Verdict, judge
from pipeline.trainer import TRAIN_IDS_ASSET

_CURVES = ("precision_at_k", "precision_recall")


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
    least_lift: Parameter[float],
    least_score: Parameter[float],
    most_drop: Parameter[float],
    baseline_model: InputArtifact[Model] = None,
) -> None:
    """Writes metrics.json, curves.json, verdict.json and report.html, and the blessing.

    Args:
        examples: raw pairs, which the blessed model is measured on.
        transformed_examples: what the new model is measured on.
        transform_graph: the fitted preprocessing.
        model: the new model.
        model_run: its training's folder.
        evaluation: what is written.
        blessing: with the properties that Pusher and Resolver look for.
        title: the report's heading.
        seed: of the order of ties.
        least_lift: see `Thresholds`.
        least_score: see `Thresholds`.
        most_drop: see `Thresholds`.
        baseline_model: the latest blessed model, if there is one.
    """
    spec = tft.TFTransformOutput(transform_graph.uri).transformed_feature_spec()
    query, database = (
        load_transformed(split_files(transformed_examples.uri, split), spec) for split in (QUERY, DATABASE)
    )
    trained = load_model(model_run.uri)
    metrics = evaluate_model(trained, query, database, seed=seed)
    baseline, remarks = None, []
    if baseline_model is not None:
        baseline, remarks = _measure_baseline(baseline_model, model, metrics, examples.uri, query.ids, seed)
    verdict = judge(metrics, baseline, Thresholds(least_lift, least_score, most_drop))

    folder = Path(evaluation.uri)
    figures = {name: value for name, value in metrics.items() if name not in _CURVES}
    write_json(folder / "metrics.json", figures)
    # Pusher sees the blessing, not the evaluation, and puts the figures beside the model.
    write_json(Path(blessing.uri) / METRICS_ASSET, figures)
    write_json(folder / "curves.json", {name: metrics[name] for name in _CURVES if name in metrics})
    write_json(folder / "verdict.json", describe(verdict, remarks))
    evaluated = Evaluated(
        title=title,
        model=trained,
        metrics=metrics,
        # A column of zeros would tell nothing.
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
    _bless(blessing, verdict, model, baseline_model)


def describe(verdict: Verdict, remarks: list[str]) -> dict[str, Any]:
    """The verdict as JSON."""
    return {
        "blessed": verdict.blessed,
        "reasons": [*verdict.reasons, *remarks],
        "score": verdict.score,
        "baseline_score": verdict.baseline_score,
    }


def _measure_baseline(
    baseline_model: Any, model: Any, metrics: dict[str, Any], examples_uri: str, query_ids: Any, seed: int
) -> tuple[dict[str, Any] | None, list[str]]:
    """The blessed model's measures on the same pairs, by its own preprocessing; and what to know about them."""
    if baseline_model.id == model.id:
        return metrics, ["the blessed model is this one"]
    directory = Path(path_utils.serving_model_path(baseline_model.uri))
    try:
        query, database = (hash_split(directory, examples_uri, split) for split in (QUERY, DATABASE))
    except (OSError, ValueError, tf.errors.OpError) as error:
        # TensorFlow's, when vectors have another width, go on with the graph's nodes.
        reason = str(error).partition("\n")[0]
        return None, [f"the blessed model could not be measured on these data ({reason})"]
    seen = set(json.loads((directory / "assets.extra" / TRAIN_IDS_ASSET).read_text(encoding="utf-8")))
    remarks = []
    if seen.intersection(query_ids):
        remarks.append("the blessed model has seen some of these queries in training, and scores too high")
    return evaluate_retrieval(query, database, seed=seed), remarks


def _bless(blessing: Any, verdict: Verdict, model: Any, baseline_model: Any) -> None:
    """The properties and the file that TFX's own Evaluator leaves."""
    write_text(Path(blessing.uri) / ("BLESSED" if verdict.blessed else "NOT_BLESSED"), "")
    blessing.set_int_custom_property("blessed", int(verdict.blessed))
    blessing.set_string_custom_property("current_model", model.uri)
    blessing.set_int_custom_property("current_model_id", model.id)
    if baseline_model is not None:
        blessing.set_string_custom_property("baseline_model", baseline_model.uri)
        blessing.set_int_custom_property("baseline_model_id", baseline_model.id)
