"""The Tuner component's `tuner_fn`: the search over the loss weights, on transformed pairs."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import tensorflow_transform as tft
from tfx import v1 as tfx
from tfx.components.trainer.fn_args_utils import FnArgs

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.data.paired import PairedData
from pipeline import console
from pipeline.examples import load_transformed
from pipeline.trainer import training_config
from tuner.search_folder import SearchFolder
from tuner.search_space import make_space
from tuner.weight_search import WeightSearch


def tuner_fn(fn_args: FnArgs) -> tfx.components.TunerFnResult:
    """The search, ready to run. The objective is val_map where there are labels, and the label-free one where not.

    Args:
        fn_args: TFX's; the training files, the database as the evaluation files, and in `custom_config` `config`, the
            resolved configuration as a dict, `trials`, `tuning_root`, a folder that outlives a killed run, "" for none,
            and `title`.
    """
    options = fn_args.custom_config
    feature_spec = tft.TFTransformOutput(fn_args.transform_graph_path).transformed_feature_spec()
    train = load_transformed(fn_args.train_files, feature_spec)
    pool = training_pairs_first(train, load_transformed(fn_args.eval_files, feature_spec))
    config = training_config(options["config"], None)
    search = WeightSearch(
        folder=_folder(options["tuning_root"] or fn_args.working_dir, config, pool, len(train)),
        space=make_space(config),
        pool=pool,
        num_train=len(train),
        trials=options["trials"],
        data_name=options["title"],
    )
    search.begin(console.stream())
    tell = search.teller(console.stream())
    tell()
    # What the trainings say goes to the run's log, where standard output goes too.
    tuner = search.make_tuner(sys.stdout, on_trial=tell, on_end=lambda: search.conclude(console.stream()))
    return tfx.components.TunerFnResult(tuner=tuner, fit_kwargs={})


def training_pairs_first(train: PairedData, database: PairedData) -> PairedData:
    """The database with the training pairs in front, in their order.

    Args:
        train: with ids.
        database: with ids, those of `train` among them.
    """
    row_of = {identifier: row for row, identifier in enumerate(database.ids.tolist())}
    first = np.array([row_of[identifier] for identifier in train.ids.tolist()])
    others = np.setdiff1d(np.arange(len(database)), first)
    return database.take(np.concatenate([first, others]))


def _folder(root: str, config: CMIMHConfig, pool: PairedData, num_train: int) -> SearchFolder:
    """The same folder for the same configuration and data: TFX gives each attempt a new working folder."""
    identity = [config.to_dict(), pool.fingerprint(), num_train]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    return SearchFolder(Path(root) / digest.hexdigest()[:16])
