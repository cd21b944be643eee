"""One local run from flags to the final table."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmimh_tf import command_line
from cmimh_tf.atomic import write_json
from cmimh_tf.features.registry import image_features_version, text_features_version
from cmimh_tf.training.progress import format_seconds
from pipeline import console
from pipeline.run_root import RootInUse, RunRoot
from pipeline.sources import absolute_spec, open_source

if TYPE_CHECKING:
    from pipeline.dag import PipelineOptions
    from pipeline.local_runner import RunResult

NOT_PUSHED = 3


def run(arguments: argparse.Namespace) -> int:
    """Runs the pipeline.

    Args:
        arguments: the flags of run_local.py.

    Returns:
        0 when a model was pushed or is still the pushed one, 1 for a failed component, 2 for what the user can cure
        before anything runs, 3 when the model was not blessed.
    """
    if arguments.tune is not None and arguments.tune < 1:
        raise ValueError(f"`tune` must be at least 1. Received: tune={arguments.tune}.")
    if arguments.docker_check and shutil.which("docker") is None:
        raise ValueError("`--docker-check` needs Docker, and there is no `docker` command here.")
    if arguments.image_features:
        image_features_version(arguments.image_features)
    if arguments.text_features:
        text_features_version(arguments.text_features)
    config = command_line.config_from_flags(arguments)
    spec = absolute_spec(arguments.data) if arguments.data else arguments.dataset
    source = open_source(spec)
    root = RunRoot((arguments.root or Path("runs") / "pipeline" / source.name).absolute())
    log = root.logs / f"{datetime.datetime.now():%Y%m%d-%H%M%S}.log"
    try:
        with root.locked():
            root.claim(spec)
            redirect = contextlib.nullcontext() if arguments.verbose else console.output_to_log(log)
            with redirect:
                return _run_locked(arguments, config, spec, source, root, log)
    except RootInUse as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run_locked(arguments: argparse.Namespace, config: Any, spec: str, source: Any, root: RunRoot, log: Path) -> int:
    console.say(f"{source.name}, {config.code_length} bits, seed {config.seed}; everything goes to {_short(root.path)}")
    started = time.monotonic()
    # TensorFlow, TFX and Beam: several seconds.
    from pipeline.dag import PipelineOptions
    from pipeline.local_runner import ComponentFailed
    from pipeline.thresholds import Thresholds

    options = PipelineOptions(
        source=spec,
        config=config,
        fingerprint=source.fingerprint(),
        num_queries=arguments.queries,
        num_train=arguments.train_pairs,
        pca_units=arguments.pca or None,
        vocabulary_size=arguments.vocabulary,
        image_features=arguments.image_features,
        text_features=arguments.text_features,
        features_cache=str(root.path / "features"),
        thresholds=Thresholds(least_score=arguments.least_score / 100, most_drop=arguments.most_drop / 100),
        checkpoint_root=str(root.training),
        tune_trials=arguments.tune or 0,
        tuning_root=str(root.path / "tuning"),
        docker_check=arguments.docker_check,
    )
    try:
        result = _run_components(arguments, options, source.name, root)
    except ComponentFailed as error:
        traceback.print_exc()
        console.say(f"error: {error}")
        if error.component == "ExampleValidator":
            console.say(
                f"schema: {_short(arguments.schema or root.schema)}; edit it if the change is meant, or delete it"
            )
        if not arguments.verbose:
            console.say(f"details: {_short(log)}")
        return 1
    return _summarise(result, root, time.monotonic() - started, log)


def _run_components(arguments: argparse.Namespace, options: PipelineOptions, name: str, root: RunRoot) -> RunResult:
    from pipeline.curated_schema import curate
    from pipeline.dag import create_pipeline, sqlite_metadata
    from pipeline.local_runner import component_names, run_pipeline

    def pipeline(schema_file: str | None) -> Any:
        return create_pipeline(
            f"cmimh-{name}",
            str(root.artifacts),
            str(root.serving),
            dataclasses.replace(options, schema_file=schema_file),
            metadata_connection_config=sqlite_metadata(root.metadata),
            beam_pipeline_args=[f"--{argument}" for argument in arguments.beam],
        )

    known = component_names(pipeline("schema.pbtxt"))
    without_cache = set(arguments.no_cache)
    for component in (*without_cache, *([arguments.first] if arguments.first else [])):
        if component not in known:
            raise ValueError(f"`component` must be one of {', '.join(known)}. Received: {component!r}.")
    if arguments.first:
        without_cache.update(known[known.index(arguments.first) :])
    # TFX looks for its own copy of a pushed model, not into the folder of versions, where others may delete or push.
    # Pushing what is there already changes nothing.
    without_cache.add("Pusher")
    if "Trainer" in without_cache:
        shutil.rmtree(root.training, ignore_errors=True)
    if "Tuner" in without_cache:
        shutil.rmtree(options.tuning_root, ignore_errors=True)

    schema = arguments.schema or root.schema
    if arguments.schema is None and not root.schema.exists():
        first = run_pipeline(pipeline(None), without_cache=without_cache, stop_after="SchemaGen")
        curate(Path(first.outputs["SchemaGen"]["schema"].uri) / "schema.pbtxt", root.schema)
        told = list(first.outputs)
        without_cache.difference_update(told)
        result = run_pipeline(pipeline(root.pinned_schema(schema)), without_cache=without_cache, already_told=told)
        result.seconds = {**result.seconds, **first.seconds}
        return result
    return run_pipeline(pipeline(root.pinned_schema(schema)), without_cache=without_cache)


def _summarise(result: RunResult, root: RunRoot, seconds: float, log: Path) -> int:
    """The table, the blessing and why, and where things are."""
    evaluation = Path(result.outputs["RetrievalEvaluator"]["evaluation"].uri)
    metrics = json.loads((evaluation / "metrics.json").read_text(encoding="utf-8"))
    verdict = json.loads((evaluation / "verdict.json").read_text(encoding="utf-8"))
    check = Path(result.outputs["SavedModelCheck"]["blessing"].uri) / "check.json"
    problems = json.loads(check.read_text(encoding="utf-8"))["problems"]
    pushed = result.outputs["Pusher"]["pushed_model"].custom_properties
    write_json(log.with_suffix(".json"), {"total_seconds": seconds, "seconds": result.seconds})
    console.say()
    console.say(command_line.metrics_table(metrics))
    console.say()
    console.say(f"{'blessed' if verdict['blessed'] else 'not blessed'}: {'; '.join(verdict['reasons'])}")
    for problem in problems:
        console.say(f"not servable: {problem}")
    is_pushed = pushed["pushed"].int_value == 1
    console.say(f"model:  {_short(Path(pushed['pushed_destination'].string_value)) if is_pushed else 'not pushed'}")
    console.say(f"report: {_short(evaluation / 'report.html')}")
    console.say(f"log:    {_short(log)}")
    console.say(f"time:   {format_seconds(seconds)}")
    return 0 if is_pushed else NOT_PUSHED


def _short(path: Path) -> str:
    """Relative to where the user is, if it is below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
