"""Where pairs come from: data sets by name, and files of three kinds."""

from pipeline.sources.base import DataError, PairSource, SourceIndex
from pipeline.sources.open_source import DATASETS, open_source

__all__ = ["DATASETS", "DataError", "PairSource", "SourceIndex", "open_source"]
