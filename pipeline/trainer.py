"""What the Trainer and Tuner components run: `run_fn` trains and exports, `tuner_fn` searches for the loss weights."""

import dataclasses
import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_transform as tft
from tfx import v1 as tfx
from tfx.components.trainer.fn_args_utils import FnArgs

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.files import remove_folder, write_json
from cmimh_tf.overrides import override
from cmimh_tf.training.run_folder import RunFolder
from cmimh_tf.training.trainer import train_model
from pipeline import console
from pipeline.examples import load_transformed
from pipeline.transform import TransformPreprocessing
from serving.export import export_model

TRAIN_IDS_ASSET = "train_ids.json"
_KEPT_TRAININGS = 2
# Vectors that are too large for memory are here until the training is complete.
_VECTORS = "vectors"


def run_fn(fn_args: FnArgs) -> None:
    """Trains on transformed pairs, exports a model for raw ones, and saves the run as the ModelRun artifact.

    Args:
        fn_args: TFX's arguments. `custom_config` holds `config`, the resolved configuration as a dict;
            `checkpoint_root`, a folder for checkpoints that survives an interrupted run, "" for none; and
            `image_features` and `text_features`, the names of the features.
    """
    transform_output = tft.TFTransformOutput(fn_args.transform_output)
    vectors = Path(fn_args.custom_config["checkpoint_root"] or fn_args.model_run_dir) / _VECTORS
    train = load_transformed(fn_args.train_files, transform_output.transformed_feature_spec(), vectors)
    config = training_config(fn_args.custom_config["config"], fn_args.hyperparameters)
    folder = RunFolder(_training_folder(fn_args, config, train))
    folder.claim({"config": config.to_dict(), "data": {"train_fingerprint": train.fingerprint()}})

    trained = train_model(train, config, folder.path, progress=console.stream())
    for problem in trained.problems:
        console.say(f"warning: {problem}")
    folder.save_model(trained.model)
    write_json(folder.path / "problems.json", trained.problems)
    remove_folder(vectors)
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
    model_run = Path(fn_args.model_run_dir)
    if folder.path != model_run:
        shutil.copytree(folder.path, model_run, ignore=shutil.ignore_patterns("checkpoints"), dirs_exist_ok=True)


def tuner_fn(fn_args: FnArgs) -> tfx.components.TunerFnResult:
    """Prepares the search. Its objective is val_map if there are labels, and the label-free criterion otherwise.

    Args:
        fn_args: TFX's arguments: the training pairs as `train_files`, the database as `eval_files`. `custom_config`
            holds `config`, the resolved configuration as a dict; `trials`; `tuning_root`, a folder that survives an
            interrupted run, "" for none; and `title`.
    """
    # Only runs with --tune need KerasTuner.
    from tuner.results import SearchFolder
    from tuner.search import WeightSearch
    from tuner.search_space import make_space
    from tuner.weight_tuner import make_tuner

    options = fn_args.custom_config
    feature_spec = tft.TFTransformOutput(fn_args.transform_graph_path).transformed_feature_spec()
    train = load_transformed(fn_args.train_files, feature_spec)
    pool = training_pairs_first(train, load_transformed(fn_args.eval_files, feature_spec))
    config = training_config(options["config"], None)
    search = WeightSearch(
        folder=SearchFolder(_search_folder(options["tuning_root"] or fn_args.working_dir, config, pool, len(train))),
        space=make_space(config),
        pool=pool,
        num_train=len(train),
        trials=options["trials"],
        data_name=options["title"],
    )
    search.begin(console.stream())
    show_trials = search.trial_table(console.stream())
    show_trials()
    # The progress of single trainings goes to the log, where standard output is redirected to.
    tuner = make_tuner(search, sys.stdout, on_trial=show_trials, on_end=lambda: search.finish(console.stream()))
    return tfx.components.TunerFnResult(tuner=tuner, fit_kwargs={})


def training_config(values: dict[str, Any], hyperparameters: dict[str, Any] | None) -> CMIMHConfig:
    """The configuration to train with: the tuned values replace the given ones, and Transform does the scaling.

    Args:
        values: the resolved configuration.
        hyperparameters: the configuration of KerasTuner HyperParameters, with dotted keys as names; None for none.
    """
    config = override(CMIMHConfig.from_dict(values), (hyperparameters or {}).get("values", {}))
    return dataclasses.replace(config, network=dataclasses.replace(config.network, input_norm=None))


def training_pairs_first(train: PairedData, database: PairedData) -> PairedData:
    """The database, reordered so that the training pairs come first, in their order.

    Args:
        train: pairs with ids.
        database: pairs with ids, among them those of `train`.
    """
    if train.ids is None or database.ids is None:
        raise ValueError("`train` and `database` must have ids. Received: pairs without ids.")
    row_of = {identifier: row for row, identifier in enumerate(database.ids.tolist())}
    first = np.array([row_of[identifier] for identifier in train.ids.tolist()])
    others = np.setdiff1d(np.arange(len(database)), first)
    return database.take(np.concatenate([first, others]))


def _training_folder(fn_args: FnArgs, config: CMIMHConfig, train: PairedData) -> Path:
    """A folder named after configuration and data: TFX's own output folder is a new one in each attempt."""
    root = fn_args.custom_config["checkpoint_root"]
    if not root:
        return Path(fn_args.model_run_dir)
    key = hashlib.sha256(f"{json.dumps(config.to_dict(), sort_keys=True)}{train.fingerprint()}".encode())
    folder = Path(root) / key.hexdigest()[:16]
    others = [path for path in Path(root).glob("*") if path.is_dir() and path not in (folder, Path(root) / _VECTORS)]
    for old in sorted(others, key=lambda path: path.stat().st_mtime)[: -(_KEPT_TRAININGS - 1)]:
        remove_folder(old)
    return folder


def _search_folder(root: str, config: CMIMHConfig, pool: PairedData, num_train: int) -> Path:
    """A folder named after configuration and data, likewise."""
    identity = [config.to_dict(), pool.fingerprint(), num_train]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    return Path(root) / digest.hexdigest()[:16]
