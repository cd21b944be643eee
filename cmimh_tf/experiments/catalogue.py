"""All experiments by name."""

from collections.abc import Callable

from cmimh_tf.experiments import comparisons, paper_settings, studies
from cmimh_tf.experiments.experiment import Experiment
from cmimh_tf.experiments.options import Options

EXPERIMENTS: dict[str, Callable[[Options], Experiment]] = {
    "main": comparisons.main,
    "mutual-information-weight": studies.mutual_information_weight,
    "modality-gap-weight": studies.modality_gap_weight,
    "critic-inputs": studies.critic_inputs,
    "independence": studies.independence,
    "ablation": studies.ablation,
    "curves": comparisons.curves,
    "map50": paper_settings.map50,
    "map-all": paper_settings.map_all,
    "handcrafted": paper_settings.handcrafted,
    "recall-one": paper_settings.recall_one,
    "training-size": comparisons.training_size,
}
