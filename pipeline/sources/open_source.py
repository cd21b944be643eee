"""A source by the name of a data set, or by a path."""

from __future__ import annotations

from pathlib import Path

from pipeline.sources.base import PairSource

EMBEDDED_DATASETS = ("emoji", "synthetic")
DOWNLOADED_DATASETS = ("mirflickr25k", "nuswide", "mscoco")
DATASETS = EMBEDDED_DATASETS + DOWNLOADED_DATASETS


def open_source(spec: str) -> PairSource:
    """The source that `--dataset` or `--data` names. Reads nothing yet.

    Args:
        spec: the name of a data set, or the path of an .npz, of a .csv, or of TFRecords (a file, a folder or a
            pattern).

    Raises:
        ValueError: for a data set that is not there yet.
        FileNotFoundError: for a path that does not exist.
    """
    if spec == "emoji":
        from pipeline.sources.emoji import EmojiSource

        return EmojiSource()
    if spec == "synthetic":
        from pipeline.sources.vectors import SyntheticSource

        return SyntheticSource()
    if spec in DOWNLOADED_DATASETS:
        raise ValueError(
            f"`dataset` must be one of {', '.join(EMBEDDED_DATASETS)} in this version. Received: dataset={spec!r}. "
            "Bring its features as an .npz, or its pictures and captions as a .csv: --data PATH."
        )
    path = Path(spec)
    if path.suffix == ".npz":
        from pipeline.sources.vectors import NpzSource

        return NpzSource(_existing(path))
    if path.suffix == ".csv":
        from pipeline.sources.pictures_and_captions import CsvSource

        return CsvSource(_existing(path))
    from pipeline.sources.tfrecords import TFRecordSource, find_files

    return TFRecordSource(spec, tuple(find_files(spec)))


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"`data` must be a file that exists. Received: {path}.")
    return path.absolute()
