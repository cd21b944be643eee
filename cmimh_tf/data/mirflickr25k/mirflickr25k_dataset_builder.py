"""TFDS builder of MIR-Flickr25k."""

from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from cmimh_tf.data.mirflickr25k.official_pairs import LABELS, MirflickrCounts, MirflickrPairs, read_mirflickr
from cmimh_tf.data.retrieval_builder import RetrievalBuilder, RetrievalConfig, make_configs

_SETTINGS = [
    RetrievalConfig("main", description="2,000 queries; 5,000 training pairs.", num_queries=2000, num_train=5000),
    RetrievalConfig(
        "queries_5_percent", description="5% queries; the rest is training set and database.", query_share=0.05
    ),
    RetrievalConfig(
        "recall_one",
        description="1,000 queries and 1,000 validation pairs for RecallOne@k; the rest is training set and database.",
        num_queries=1000,
        num_validation=1000,
    ),
]


class Builder(RetrievalBuilder):
    """Pictures, 1,386 tags and 24 labels of the 20,015 pairs that have one of each."""

    BUILDER_CONFIGS = make_configs(_SETTINGS)
    DEFAULT_CONFIG_NAME = "main"
    MANUAL_DOWNLOAD_INSTRUCTIONS = """\
From https://press.liacs.nl/mirflickr/mirdownload.html get mirflickr25k.zip (2.9 GB) and
mirflickr25k_annotations_v080.zip, and unpack both into this folder, so that it has mirflickr/im1.jpg,
mirflickr/meta/tags/tags1.txt, mirflickr/doc/common_tags.txt and mirflickr25k_annotations_v080/animals.txt.
"""

    def _info(self) -> tfds.core.DatasetInfo:
        counts = self.builder_config.counts or MirflickrCounts()
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "id": tfds.features.Text(),
                    "image": tfds.features.Image(encoding_format="jpeg"),
                    "text": tfds.features.Tensor(shape=(counts.common_tags,), dtype=np.uint8),
                    "caption": tfds.features.Text(),
                    "labels": tfds.features.Tensor(shape=(len(LABELS),), dtype=np.uint8),
                }
            ),
            homepage="https://press.liacs.nl/mirflickr/",
            license="Pictures under Creative Commons licences, one a picture: mirflickr/meta/license/license*.txt.",
            # The order of the splits is the protocol's.
            disable_shuffling=True,
        )

    def read_pairs(self, folder: Path) -> MirflickrPairs:
        return read_mirflickr(folder, self.builder_config.counts)
