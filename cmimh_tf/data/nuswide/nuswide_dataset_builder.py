"""TFDS builder of NUS-WIDE."""

import dataclasses
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from cmimh_tf.data.nuswide.official_pairs import NuswideCounts, NuswidePairs, read_nuswide
from cmimh_tf.data.retrieval_builder import RetrievalBuilder, RetrievalConfig, make_configs


@dataclasses.dataclass(eq=False)
class NuswideConfig(RetrievalConfig):
    """A setting, with pictures or with the 500-d bag of SIFT words."""

    visual_words: bool = False


def _with_training_pairs(name: str, number: int, **more: bool) -> NuswideConfig:
    kind = "; pictures as 500-d SIFT words" if more else ""
    return NuswideConfig(
        name, description=f"2,000 queries; {number:,} training pairs{kind}.", num_queries=2000, num_train=number, **more
    )


_SETTINGS = [
    _with_training_pairs("main", 5_000),
    _with_training_pairs("train_10000", 10_000),
    _with_training_pairs("train_20000", 20_000),
    _with_training_pairs("sift_20000", 20_000, visual_words=True),
    NuswideConfig(
        "queries_1_percent", description="1% queries; the rest is training set and database.", query_share=0.01
    ),
    NuswideConfig(
        "recall_one",
        description="1,000 queries and 1,000 validation pairs for RecallOne@k; the rest is training set and database.",
        num_queries=1000,
        num_validation=1000,
    ),
]


class Builder(RetrievalBuilder):
    """Pictures or SIFT words, 1,000 tags and 10 labels of the 186,577 pairs with one of the 10 largest concepts."""

    BUILDER_CONFIGS = make_configs(_SETTINGS)
    DEFAULT_CONFIG_NAME = "main"
    MANUAL_DOWNLOAD_INSTRUCTIONS = """\
From https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html get ImageList.zip,
NUS_WID_Tags.zip, Groundtruth.zip, ConceptsList.zip and, for the configuration sift_20000,
NUS_WID_Low_Level_Features.zip; the pictures (Flickr/) are given on request there. Unpack them into this folder, so that
it has ImageList/Imagelist.txt, NUS_WID_Tags/AllTags1k.txt, NUS_WID_Tags/TagList1k.txt,
Groundtruth/AllLabels/Labels_sky.txt, ConceptsList/Concepts81.txt, Low_Level_Features/BoW_int.dat and
Flickr/actor/0001_2124494179.jpg.
"""

    def _info(self) -> tfds.core.DatasetInfo:
        counts = self.builder_config.counts or NuswideCounts()
        if self.builder_config.visual_words:
            image = tfds.features.Tensor(shape=(counts.visual_words,), dtype=np.float32)
        else:
            image = tfds.features.Image(encoding_format="jpeg")
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "id": tfds.features.Text(),
                    "image": image,
                    "text": tfds.features.Tensor(shape=(counts.tags,), dtype=np.uint8),
                    "caption": tfds.features.Text(),
                    "labels": tfds.features.Tensor(shape=(counts.kept_concepts,), dtype=np.uint8),
                }
            ),
            homepage="https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html",
            license="For research only; pictures under their Flickr owners' terms, after NUS's agreement form.",
            # The order of the splits is the protocol's.
            disable_shuffling=True,
        )

    def read_pairs(self, folder: Path) -> NuswidePairs:
        config = self.builder_config
        return read_nuswide(folder, config.counts, visual_words=config.visual_words)
