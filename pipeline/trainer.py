"""The Trainer component's `run_fn`: trains on transformed pairs and exports a model that takes raw ones."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import tensorflow_transform as tft
from tfx.components.trainer.fn_args_utils import FnArgs

from cmimh_tf.atomic import write_json
from cmimh_tf.config import CMIMHConfig
from cmimh_tf.data.paired import PairedData
from cmimh_tf.overrides import override
from cmimh_tf.training.run_folder import RunFolder
from cmimh_tf.training.trainer import train_model
from pipeline import console
from pipeline.examples import load_transformed
from pipeline.transform_preprocessing import TransformPreprocessing
from serving.export import export_model

TRAIN_IDS_ASSET = "train_ids.json"
_KEPT_TRAININGS = 2


def run_fn(fn_args: FnArgs) -> None:
    """Trains, exports, and leaves the run's folder as the ModelRun artifact.

    Args:
        fn_args: TFX's; `custom_config` has `config`, the resolved configuration as a dict, `checkpoint_root`, a
            folder that outlives a killed run, "" for none, and the names of `image_features` and `text_features`.
    """
    transform_output = tft.TFTransformOutput(fn_args.transform_output)
    train = load_transformed(fn_args.train_files, transform_output.transformed_feature_spec())
    config = training_config(fn_args.custom_config["config"], fn_args.hyperparameters)
    folder = RunFolder(_working_folder(fn_args, config, train))
    folder.claim({"config": config.to_dict(), "data": {"train_fingerprint": train.fingerprint()}})

    trained = train_model(train, config, folder.path, progress=console.stream())
    for problem in trained.problems:
        console.say(f"warning: {problem}")
    folder.save_model(trained.model)
    write_json(folder.path / "problems.json", trained.problems)
    ids = [] if train.ids is None else train.ids.tolist()
    export_model(
        trained.model,
        fn_args.serving_model_dir,
        preprocessing=TransformPreprocessing(
            transform_output,
            fn_args.custom_config.get("image_features", ""),
            fn_args.custom_config.get("text_features", ""),
        ),
        extra_assets={TRAIN_IDS_ASSET: json.dumps(ids)},
    )
    _copy_run(folder, Path(fn_args.model_run_dir))


def training_config(values: dict[str, Any], hyperparameters: dict[str, Any] | None) -> CMIMHConfig:
    """The configuration to train with: a tuner's best values on top, and no scaling, which Transform has done.

    Args:
        values: the resolved configuration.
        hyperparameters: the configuration of KerasTuner HyperParameters, with dotted keys as names; None for none.
    """
    config = override(CMIMHConfig.from_dict(values), (hyperparameters or {}).get("values", {}))
    return dataclasses.replace(config, network=dataclasses.replace(config.network, input_norm=None))


def _working_folder(fn_args: FnArgs, config: CMIMHConfig, train: PairedData) -> Path:
    """The same folder for the same configuration and data: TFX gives each attempt a new output folder."""
    root = fn_args.custom_config["checkpoint_root"]
    if not root:
        return Path(fn_args.model_run_dir)
    key = hashlib.sha256(f"{json.dumps(config.to_dict(), sort_keys=True)}{train.fingerprint()}".encode())
    folder = Path(root) / key.hexdigest()[:16]
    others = [path for path in Path(root).glob("*") if path.is_dir() and path != folder]
    for old in sorted(others, key=lambda path: path.stat().st_mtime)[: -(_KEPT_TRAININGS - 1)]:
        shutil.rmtree(old)
    return folder


def _copy_run(folder: RunFolder, target: Path) -> None:
    """Model, history, TensorBoard logs; checkpoints stay behind."""
    if folder.path != target:
        shutil.copytree(folder.path, target, ignore=shutil.ignore_patterns("checkpoints"), dirs_exist_ok=True)
