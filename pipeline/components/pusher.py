"""Pusher: TFX's own component, with an executor that publishes versions 1, 2, 3 atomically."""

import filecmp
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfx.components.pusher import executor as tfx_executor
from tfx.proto import pusher_pb2
from tfx.types import Artifact, artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from cmimh_tf.checksums import CHECKSUM_FILE, EXTRA_ASSETS, verify_export, write_export_checksums
from cmimh_tf.files import atomic_folder
from cmimh_tf.metrics.code_profile import PROFILE_FILE
from serving.export import next_version, remove_leftovers

METRICS_ASSET = "metrics.json"


class AtomicPusherExecutor(tfx_executor.Executor):
    """Copies the model to a temporary folder and renames it, so that a server never sees half a model.

    A destination that is not a local folder is handled by TFX's own executor.
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
        assets = [Path(blessing.uri) / name for name in (METRICS_ASSET, PROFILE_FILE)]
        version = push(Path(self.GetModelPath(input_dict)), Path(base), [path for path in assets if path.exists()])
        shutil.copytree(version, pushed.uri, dirs_exist_ok=True)
        self._MarkPushed(pushed, pushed_destination=str(version), pushed_version=version.name)


def push(model: Path, base: Path, assets: Sequence[Path]) -> Path:
    """Copies a model to the next version's folder and adds files to its extra assets.

    Args:
        model: the exported model.
        base: the folder of versions.
        assets: the metrics that the model was blessed for, and the profile of its codes.

    Returns:
        The version's folder. If the newest version already holds this model, that version.
    """
    remove_leftovers(base)
    version = next_version(base)
    newest = base / str(int(version.name) - 1)
    if newest.is_dir() and _holds(newest, model, assets):
        return newest
    with atomic_folder(version) as temporary:
        shutil.copytree(model, temporary, dirs_exist_ok=True)
        verify_export(temporary)
        (temporary / EXTRA_ASSETS).mkdir(exist_ok=True)
        for asset in assets:
            shutil.copyfile(asset, temporary / EXTRA_ASSETS / asset.name)
        write_export_checksums(temporary)
    return version


def _holds(version: Path, model: Path, assets: Sequence[Path]) -> bool:
    """Whether a version consists of exactly this model and these assets."""
    # The list of the version also has the assets.
    checksums = Path(EXTRA_ASSETS) / CHECKSUM_FILE
    expected = {path.relative_to(model): path for path in model.rglob("*") if path.is_file()}
    expected |= {Path(EXTRA_ASSETS) / asset.name: asset for asset in assets}
    present = {path.relative_to(version): path for path in version.rglob("*") if path.is_file()}
    for files in (expected, present):
        files.pop(checksums, None)
    return expected.keys() == present.keys() and all(
        filecmp.cmp(expected[name], present[name], shallow=False) for name in expected
    )
