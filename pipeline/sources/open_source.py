"""A source by the name of a data set, or by a path."""

from __future__ import annotations

from pathlib import Path

from cmimh_tf.data.readers.open_reader import DATASETS, TFDS_PREFIX
from cmimh_tf.data.records import open_records
from pipeline.sources.base import PairSource

__all__ = ["DATASETS", "absolute_spec", "open_source"]


def open_source(spec: str) -> PairSource:
    """The source that `--dataset` or `--data` names. Reads no pair yet.

    Args:
        spec: a name or a path; see `cmimh_tf.data.records.open_records`.

    Raises:
        ValueError: for a name or a kind of file that is not known.
        FileNotFoundError: for a path that does not exist.
    """
    return PairSource(open_records(spec))


def absolute_spec(spec: str) -> str:
    """`spec` so that it stands for the same from any folder: a name as it is, a path as an absolute one."""
    is_name = spec.startswith(TFDS_PREFIX) or spec.split("/")[0] in DATASETS
    return spec if is_name and not Path(spec).exists() else str(Path(spec).absolute())
