"""Where pairs come from: what `cmimh_tf.data.records` reads, for Beam."""

from cmimh_tf.data.records import DataError
from cmimh_tf.data.records import RecordIndex as SourceIndex
from pipeline.sources.base import PairSource
from pipeline.sources.open_source import DATASETS, absolute_spec, open_source

__all__ = ["DATASETS", "DataError", "PairSource", "SourceIndex", "absolute_spec", "open_source"]
