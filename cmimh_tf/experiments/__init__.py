"""Each table and figure of the paper as one command: `python -m cmimh_tf.experiments NAME --data FILE`.

An experiment is a list of cells (method, code length, seed, configuration, split) together with the tables and plots
that show their results. Each cell is measured in a worker process and stored in a file of its own. Experiments with
the same `--out` share the cells that they have in common.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cmimh_tf.experiments.experiment import Experiment
    from cmimh_tf.experiments.options import Options

# For each experiment the function that builds it, imported on demand so that --help stays fast, and its help text.
EXPERIMENTS: dict[str, tuple[str, str]] = {
    "main": ("comparisons.main", "mAP@1000 of all methods, four tasks, 16/32/48 bits"),
    "mutual-information-weight": ("studies.mutual_information_weight", "sensitivity to lambda 1"),
    "modality-gap-weight": ("studies.modality_gap_weight", "sensitivity to lambda 2"),
    "critic-inputs": (
        "studies.critic_inputs",
        "probs against 1, 5, 10, 20 sampled pairs of codes, with histograms and the cost per step",
    ),
    "independence": (
        "studies.independence",
        "with and without the independence term: total correlation, correlation of bits, mAP",
    ),
    "ablation": ("studies.ablation", "the paper's eight combinations of the four terms, 32 and 48 bits"),
    "curves": (
        "comparisons.curves",
        "precision among the first k and precision over recall, all methods, 32 bits",
    ),
    "map50": ("comparisons.map50", "mAP@50, as compared with UDCMH, 16/32/64/128 bits"),
    "map-all": (
        "comparisons.map_all",
        "mAP over the whole database, the setting of MGAH and UKD, 16/32/64/128 bits",
    ),
    "handcrafted": ("comparisons.handcrafted", "handcrafted features, the setting of CRE and FSH, 16/32/64/128 bits"),
    "recall-one": (
        "comparisons.recall_one",
        "RecallOne@1/5/10 among 1,000 queries, the setting of LDR, 16/32/64/128 bits",
    ),
    "training-size": (
        "comparisons.training_size",
        "5,000, 10,000 and 20,000 training pairs, against other deep methods",
    ),
    "paper-regime": (
        "regime.paper_regime",
        "which reading of what the paper leaves open lets its claims hold, on validation pairs",
    ),
}
# The preset that an experiment starts from, if it is not the recommended one: the studies vary terms of the paper.
BASE_PRESETS = {
    "mutual-information-weight": "mscoco",
    "modality-gap-weight": "mscoco",
    "critic-inputs": "mscoco",
    "independence": "mscoco",
    "ablation": "mscoco",
    "paper-regime": "mirflickr25k",
}


def compares_methods(name: str) -> bool:
    """Whether an experiment compares methods that the user may choose."""
    return EXPERIMENTS[name][0].startswith("comparisons.")


def make_experiment(name: str, options: "Options") -> "Experiment":
    """Builds an experiment.

    Args:
        name: a key of `EXPERIMENTS`.
        options: the data set and what the user chose.
    """
    module, _, function = EXPERIMENTS[name][0].partition(".")
    experiment: Experiment = getattr(importlib.import_module(f"cmimh_tf.experiments.{module}"), function)(options)
    return experiment
