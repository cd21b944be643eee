"""Runs a pipeline on this machine, component by component, and tells how it goes."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import compiler, constants
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import launcher, runtime_parameter_utils

from cmimh_tf.training.progress import format_seconds
from pipeline import console

_Execution = metadata_store_pb2.Execution
_DONE_STATES = (_Execution.COMPLETE, _Execution.CACHED)
_BEAM_SUFFIX = re.compile(r"\s*\[while running '[^']*'\]")


class ComponentFailed(RuntimeError):
    """A component raised; the message begins with its name."""

    def __init__(self, component: str, message: str):
        super().__init__(f"{component}: {message}")
        self.component = component


@dataclass
class RunResult:
    """What a run left.

    Attributes:
        outputs: for each component the artifacts by output name.
        seconds: for each component that was not cached.
        cached: names of the components whose earlier results were used.
    """

    outputs: dict[str, dict[str, metadata_store_pb2.Artifact]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cached: list[str] = field(default_factory=list)


def run_pipeline(
    pipeline: tfx_pipeline.Pipeline,
    *,
    without_cache: Collection[str] = (),
    stop_after: str | None = None,
    already_told: Collection[str] = (),
) -> RunResult:
    """TFX's LocalDagRunner with a line a component, and an error where that one goes on silently.

    Args:
        pipeline: with its metadata connection.
        without_cache: components that run even if nothing changed.
        stop_after: the last component to run.
        already_told: components that a run just before this one has told about.

    Raises:
        ComponentFailed: when a component fails; later ones do not start.
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
            raise ComponentFailed(name, f"did not finish, but is {_Execution.State.Name(state)}.")
        if state == _Execution.CACHED:
            result.cached.append(name)
        else:
            result.seconds[name] = seconds
        if name not in already_told:
            outcome = "cached" if state == _Execution.CACHED else "run"
            console.say(f"  {name:<22}{outcome:<8}{format_seconds(seconds):>12}")
        if name == stop_after:
            break
    return result


def component_names(pipeline: tfx_pipeline.Pipeline) -> list[str]:
    """The components in the order in which they run."""
    return [node.pipeline_node.node_info.id for node in compiler.Compiler().compile(pipeline).nodes]


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
