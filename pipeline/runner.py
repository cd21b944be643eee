"""Runs the pipeline on this machine, component by component, with a line for each and a summary."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import compiler, constants
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import launcher, runtime_parameter_utils

from cmimh_tf.checksums import DamagedFile, verify_folder, write_folder_checksums
from cmimh_tf.command_line import metrics_table
from cmimh_tf.files import remove_folder, write_json
from cmimh_tf.progress import format_seconds
from pipeline import console
from pipeline.components.index_builder import search_command
from pipeline.create_pipeline import PipelineOptions, create_pipeline, sqlite_metadata
from pipeline.root import PipelineRoot

_Execution = metadata_store_pb2.Execution
_DONE_STATES = (_Execution.COMPLETE, _Execution.CACHED)
_BEAM_SUFFIX = re.compile(r"\s*\[while running '[^']*'\]")


class ComponentFailed(RuntimeError):
    """A component raised an exception; the message begins with the component's name."""

    def __init__(self, component: str, message: str):
        super().__init__(f"{component}: {message}")
        self.component = component


@dataclass
class RunResult:
    """The outcome of a run.

    Attributes:
        outputs: the artifacts by output name, for each component.
        seconds: for each component that was not cached.
        cached: names of the components whose earlier results were reused.
    """

    outputs: dict[str, dict[str, metadata_store_pb2.Artifact]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cached: list[str] = field(default_factory=list)


def run_in_root(
    root: PipelineRoot,
    pipeline_name: str,
    options: PipelineOptions,
    *,
    schema: Path | None = None,
    without_cache: Collection[str] = (),
    beam_arguments: Sequence[str] = (),
) -> RunResult:
    """Creates the pipeline and runs it in its root.

    On the first run, the root has no schema yet: the components up to SchemaGen run first, and the inferred schema is
    kept for this and all later runs.

    Args:
        root: the folder of all runs.
        pipeline_name: the name in the metadata store.
        options: the data, the model and the settings.
        schema: a schema to use instead of the root's.
        without_cache: components that run even if nothing changed.
        beam_arguments: flags for Beam.

    Raises:
        ComponentFailed: if a component fails; later ones do not start.
    """

    def make_pipeline(schema_file: str | None) -> tfx_pipeline.Pipeline:
        return create_pipeline(
            pipeline_name,
            str(root.artifacts),
            str(root.serving),
            dataclasses.replace(options, schema_file=schema_file),
            index_directory=str(root.index),
            metadata_connection_config=sqlite_metadata(root.metadata),
            beam_pipeline_args=list(beam_arguments),
        )

    for component, folder in (("Trainer", root.training), ("Tuner", root.tuning)):
        if component in without_cache:
            remove_folder(folder)
    if schema is not None or root.schema.exists():
        pipeline = make_pipeline(root.pin_schema(schema or root.schema))
        return run_pipeline(pipeline, checksums=root.checksums, without_cache=without_cache)
    first = run_pipeline(
        make_pipeline(None), checksums=root.checksums, without_cache=without_cache, stop_after="SchemaGen"
    )
    root.curate_schema(Path(first.outputs["SchemaGen"]["schema"].uri) / "schema.pbtxt")
    # The components so far are cached now, and their lines have been printed.
    result = run_pipeline(
        make_pipeline(root.pin_schema(root.schema)),
        checksums=root.checksums,
        without_cache=set(without_cache) - set(first.outputs),
        silent=first.outputs,
    )
    result.seconds = {**result.seconds, **first.seconds}
    return result


def run_pipeline(
    pipeline: tfx_pipeline.Pipeline,
    *,
    checksums: Path | None = None,
    without_cache: Collection[str] = (),
    stop_after: str | None = None,
    silent: Collection[str] = (),
) -> RunResult:
    """Works like TFX's LocalDagRunner, but prints a line per component and stops if a component does not finish.

    Args:
        pipeline: with its metadata connection.
        checksums: a folder for the checksums of all outputs. Outputs of an earlier run are compared before they are
            reused; None compares nothing.
        without_cache: components that run even if nothing changed.
        stop_after: the last component to run.
        silent: components to print no line for.

    Raises:
        ComponentFailed: if a component fails; later ones do not start.
    """
    ir = compiler.Compiler().compile(pipeline)
    run_id = {constants.PIPELINE_RUN_ID_PARAMETER_NAME: datetime.datetime.now().isoformat()}
    runtime_parameter_utils.substitute_runtime_parameter(ir, run_id)
    deployment = runner_utils.extract_local_deployment_config(ir)
    connection_config = getattr(
        deployment.metadata_connection_config, deployment.metadata_connection_config.WhichOneof("connection_config")
    )
    result = RunResult()
    for node in ir.nodes:
        name = node.pipeline_node.node_info.id
        if name in without_cache:
            node.pipeline_node.execution_options.caching_options.enable_cache = False
        component_launcher = launcher.Launcher(
            pipeline_node=node.pipeline_node,
            mlmd_connection=metadata.Metadata(connection_config),
            pipeline_info=ir.pipeline_info,
            pipeline_runtime_spec=ir.runtime_spec,
            executor_spec=runner_utils.extract_executor_spec(deployment, name),
            custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, name),
        )
        started = time.monotonic()
        try:
            execution_id = component_launcher.launch().execution_id
        except Exception as error:
            raise ComponentFailed(name, _BEAM_SUFFIX.sub("", str(error))) from error
        seconds = time.monotonic() - started
        with metadata.Metadata(connection_config) as handle:
            state, result.outputs[name] = _outcome(handle.store, execution_id)
        if state not in _DONE_STATES:
            raise ComponentFailed(name, f"did not finish; its state is {_Execution.State.Name(state)}.")
        is_cached = state == _Execution.CACHED
        if checksums is not None:
            _check_outputs(name, result.outputs[name].values(), checksums, is_new=not is_cached)
        if is_cached:
            result.cached.append(name)
        else:
            result.seconds[name] = seconds
        if name not in silent:
            outcome = "cached" if is_cached else "run"
            console.say(f"  {name:<22}{outcome:<8}{format_seconds(seconds):>12}")
        if name == stop_after:
            break
    return result


def _check_outputs(
    component: str, artifacts: Iterable[metadata_store_pb2.Artifact], checksums: Path, *, is_new: bool
) -> None:
    """Lists the files of new artifacts, and compares those of reused ones."""
    for artifact in artifacts:
        folder, file = Path(artifact.uri), checksums / f"{component}-{artifact.id}.sha256"
        if is_new and folder.is_dir():
            write_folder_checksums(folder, file)
        elif not is_new:
            try:
                verify_folder(folder, file)
            except DamagedFile as error:
                raise ComponentFailed(component, f"{error} To run the component again: --from {component}") from error


def _outcome(store: Any, execution_id: int) -> tuple[int, dict[str, metadata_store_pb2.Artifact]]:
    """The state of an execution and its single output artifacts."""
    (execution,) = store.get_executions_by_id([execution_id])
    events = store.get_events_by_execution_ids([execution_id])
    names = {
        event.artifact_id: event.path.steps[0].key
        for event in events
        if event.type == metadata_store_pb2.Event.OUTPUT and event.path.steps
    }
    return execution.last_known_state, {names[artifact.id]: artifact for artifact in store.get_artifacts_by_id(names)}


def print_summary(result: RunResult, seconds: float, log: Path) -> bool:
    """Prints metrics, verdict and paths, and returns whether the model was pushed.

    Args:
        result: of a run of all components.
        seconds: duration of the run.
        log: the log file; the durations of the components are written to a JSON file beside it.
    """
    evaluation = Path(result.outputs["RetrievalEvaluator"]["evaluation"].uri)
    check = Path(result.outputs["SavedModelCheck"]["blessing"].uri) / "check.json"
    metrics, verdict, checked = (
        json.loads(path.read_text(encoding="utf-8"))
        for path in (evaluation / "metrics.json", evaluation / "verdict.json", check)
    )
    pushed = result.outputs["Pusher"]["pushed_model"].custom_properties
    is_pushed = pushed["pushed"].int_value == 1
    index = Path(result.outputs["IndexBuilder"]["index"].custom_properties["address"].string_value)
    model = console.relative_path(Path(pushed["pushed_destination"].string_value)) if is_pushed else "not pushed"
    write_json(log.with_suffix(".json"), {"total_seconds": seconds, "seconds": result.seconds})
    for line in (
        "",
        metrics_table(metrics),
        "",
        f"{'blessed' if verdict['blessed'] else 'not blessed'}: {'; '.join(verdict['reasons'])}",
        *(f"export check failed: {problem}" for problem in checked["problems"]),
        f"model:  {model}",
        *([f"index:  {console.relative_path(index)}"] if is_pushed else []),
        f"report: {console.relative_path(evaluation / 'report.html')}",
        f"log:    {console.relative_path(log)}",
        f"time:   {format_seconds(seconds)}",
        *([f"search: {search_command(console.relative_path(index.parent))}"] if is_pushed else []),
    ):
        console.say(line)
    return is_pushed
