"""TFDS builder of MS-COCO 2017 for retrieval."""

from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from cmimh_tf.data.mscoco.official_pairs import MscocoCounts, MscocoPairs, read_mscoco
from cmimh_tf.data.retrieval_builder import RetrievalBuilder, RetrievalConfig, make_configs

_SETTINGS = [
    RetrievalConfig(
        "main", description="Queries are the validation set; 5,000 training pairs of the database.", num_train=5000
    ),
    RetrievalConfig(
        "recall_one",
        description="1,000 queries and 1,000 validation pairs of the official validation set for RecallOne@k.",
        num_queries=1000,
        num_validation=1000,
    ),
]


class Builder(RetrievalBuilder):
    """Pictures, one caption each and 80 labels: 117,266 pairs of train2017 and 4,952 of val2017."""

    BUILDER_CONFIGS = make_configs(_SETTINGS)
    DEFAULT_CONFIG_NAME = "main"
    MANUAL_DOWNLOAD_INSTRUCTIONS = """\
From https://cocodataset.org/#download get train2017.zip (18 GB), val2017.zip (1 GB) and annotations_trainval2017.zip,
and unpack them into this folder, so that it has train2017/, val2017/, annotations/captions_train2017.json,
annotations/instances_train2017.json and the same two for val2017.
"""

    def _info(self) -> tfds.core.DatasetInfo:
        counts = self.builder_config.counts or MscocoCounts()
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "id": tfds.features.Text(),
                    "image": tfds.features.Image(encoding_format="jpeg"),
                    "caption": tfds.features.Text(),
                    "labels": tfds.features.Tensor(shape=(counts.classes,), dtype=np.uint8),
                }
            ),
            homepage="https://cocodataset.org/",
            license="Annotations CC BY 4.0; pictures under their Flickr owners' terms.",
            # The order of the splits is the protocol's.
            disable_shuffling=True,
        )

    def read_pairs(self, folder: Path) -> MscocoPairs:
        return read_mscoco(folder, self.builder_config.seed, self.builder_config.counts)
