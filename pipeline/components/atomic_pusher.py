"""Pusher whose versions appear complete or not at all, numbered 1, 2, 3."""

import filecmp
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from tfx.components.pusher import executor as tfx_executor
from tfx.proto import pusher_pb2
from tfx.types import Artifact, artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from serving.export import EXTRA_ASSETS, next_version

METRICS_ASSET = "metrics.json"
_TEMPORARY = ".tmp-push-"


class AtomicPusherExecutor(tfx_executor.Executor):
    """Copies beside the versions and renames, so that neither a server nor a kill sees half a model.

    A destination that is not a local folder is left to TFX's own executor.
    """

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        destination = pusher_pb2.PushDestination()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.PUSH_DESTINATION_KEY], destination)
        base = destination.filesystem.base_directory
        if not base or "://" in base:
            super().Do(input_dict, output_dict, exec_properties)
            return
        pushed = artifact_utils.get_single_instance(output_dict[standard_component_specs.PUSHED_MODEL_KEY])
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return
        blessing = artifact_utils.get_single_instance(input_dict[standard_component_specs.MODEL_BLESSING_KEY])
        version = push(Path(self.GetModelPath(input_dict)), Path(base), Path(blessing.uri) / METRICS_ASSET)
        shutil.copytree(version, pushed.uri, dirs_exist_ok=True)
        self._MarkPushed(pushed, pushed_destination=str(version), pushed_version=version.name)


def push(model: Path, base: Path, metrics: Path) -> Path:
    """Copies a model to the next version's folder, with the measures that it was blessed for among its extra assets.

    Args:
        model: the exported model.
        base: the folder of versions.
        metrics: the file of measures.

    Returns:
        The version's folder; the newest one if it holds this very model already.
    """
    base.mkdir(parents=True, exist_ok=True)
    for leftover in base.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(leftover)
    version = next_version(base)
    temporary = base / f"{_TEMPORARY}{secrets.token_hex(8)}"
    shutil.copytree(model, temporary)
    (temporary / EXTRA_ASSETS).mkdir(exist_ok=True)
    shutil.copyfile(metrics, temporary / EXTRA_ASSETS / METRICS_ASSET)
    newest = base / str(int(version.name) - 1)
    if newest.is_dir() and is_same_folder(temporary, newest):
        shutil.rmtree(temporary)
        return newest
    os.replace(temporary, version)
    return version


def is_same_folder(left: Path, right: Path) -> bool:
    """Whether two folders hold the same files with the same bytes."""
    names = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) for folder in (left, right)]
    if names[0] != names[1]:
        return False
    files = [name for name in names[0] if (left / name).is_file()]
    return not any(filecmp.cmpfiles(left, right, files, shallow=False)[1:])
