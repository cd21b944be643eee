"""Which reader a path or a name stands for: `open_records("pairs.csv")`, `open_records("emoji")`.

Importing this module, `check_exists`, and `open_records` of files do not import TensorFlow.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from pathlib import Path

from cmimh_tf.data.npz import similar_names
from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.readers.in_memory import EmojiReader, NpzReader, SyntheticReader
from cmimh_tf.data.readers.parquet_parts import PARTS_FILE, PartsReader
from cmimh_tf.data.readers.table_formats import CsvReader, JsonLinesReader, ParquetReader
from cmimh_tf.data.readers.tar import TarReader
from cmimh_tf.data.readers.tfds import OWN_BUILDERS, TfdsReader
from cmimh_tf.data.readers.tfrecord import TFRecordReader
from cmimh_tf.data.records import PairReader

EMBEDDED_DATASETS = ("emoji", "synthetic")
DATASETS = EMBEDDED_DATASETS + OWN_BUILDERS

TFDS_PREFIX = "tfds:"
_READER_OF_SUFFIX: dict[str, Callable[[Path], PairReader]] = {
    ".npz": NpzReader,
    ".csv": CsvReader,
    ".jsonl": JsonLinesReader,
    ".ndjson": JsonLinesReader,
    ".parquet": ParquetReader,
}
_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")
_PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
_KINDS = "an .npz, a table (.csv, .jsonl, .parquet), WebDataset shards (.tar) or TFRecords"


def open_records(spec: str) -> PairReader:
    """The reader of a path or a name. No record is read yet.

    Args:
        spec: the path of a table of pictures and captions (.csv, .jsonl, .parquet), of a folder with one, of
            WebDataset shards (.tar), of vectors (.npz), of TFRecords (a file, a folder or a pattern), of a prepared
            TFDS data set, or of the folder that `python -m cmimh_tf.spark features` writes; or the name of a data
            set: `emoji`, `synthetic`, `mirflickr25k`, `nuswide`, `mscoco`, or `tfds:NAME`.

    Raises:
        FileNotFoundError: if the path does not exist.
        ValueError: if the name or the kind of file is unknown.
    """
    _check_given(spec)
    if spec == "emoji":
        return EmojiReader()
    if spec == "synthetic":
        return SyntheticReader()
    if is_name(spec):
        return TfdsReader.open(spec.removeprefix(TFDS_PREFIX))
    path = Path(spec)
    if path.is_dir():
        return _open_folder(path)
    paths = _find_files(spec)
    suffix = _suffix(paths[0])
    if suffix not in _READER_OF_SUFFIX:
        return _open_shards(spec, paths)
    if len(paths) > 1:
        raise DataError(f"{spec}: only TFRecords and .tar shards may be several files. Received: {len(paths)}.")
    return _READER_OF_SUFFIX[suffix](paths[0])


def is_name(spec: str) -> bool:
    """Whether `spec` is the name of a data set, not a path. A file or folder of the same name takes precedence over
    the names `mirflickr25k`, `nuswide` and `mscoco`."""
    if spec in EMBEDDED_DATASETS or spec.startswith(TFDS_PREFIX):
        return True
    return spec.split("/")[0] in OWN_BUILDERS and not Path(spec).exists()


def check_exists(spec: str) -> None:
    """Raises at once if `spec` is neither a name nor an existing path. Commands call it before they import TensorFlow.

    Raises:
        FileNotFoundError: with similar names in the same folder.
        ValueError: if it is empty.
    """
    _check_given(spec)
    if not is_name(spec) and not Path(spec).is_dir():
        _find_files(spec)


def _check_given(spec: str) -> None:
    if not spec:
        raise ValueError("`data` must be a path or a name. Received: ''.")


def _open_folder(folder: Path) -> PairReader:
    """A prepared TFDS data set, parts written on Spark, pictures with one table, tar shards, or TFRecords."""
    folder = folder.absolute()
    if (folder / "dataset_info.json").is_file():
        return TfdsReader(str(folder))
    if (folder / PARTS_FILE).is_file():
        return PartsReader(folder)
    tables = sorted(path for path in folder.iterdir() if _suffix(path) in _READER_OF_SUFFIX)
    if len(tables) > 1:
        names = ", ".join(path.name for path in tables)
        raise DataError(f"{folder}: must have one table, or `data` must name one of them. Received: {names}.")
    if tables:
        return _READER_OF_SUFFIX[_suffix(tables[0])](tables[0])
    shards = sorted(path for path in folder.iterdir() if _suffix(path) in _TAR_SUFFIXES)
    if shards:
        return _open_shards(str(folder), shards)
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    pictures = [path for path in files if path.suffix.lower() in _PICTURE_SUFFIXES]
    if pictures:
        raise DataError(
            f"{folder}: must have a table of the pictures' captions: captions.csv, .jsonl or .parquet with the columns "
            f"image and text. Received: {len(pictures):,} pictures without one."
        )
    if not files:
        raise FileNotFoundError(f"{folder} is empty. `data` must be {_KINDS}.")
    # JSON files beside the records describe them.
    return _open_shards(str(folder), sorted(path for path in files if path.suffix.lower() != ".json") or files)


def _open_shards(spec: str, paths: list[Path]) -> PairReader:
    if _suffix(paths[0]) in _TAR_SUFFIXES:
        return TarReader(spec, tuple(paths))
    return TFRecordReader(spec, tuple(paths))


def _find_files(spec: str) -> list[Path]:
    """The files of a path or a pattern, in alphabetical order."""
    found = [Path(spec)] if Path(spec).is_file() else [Path(name) for name in glob.glob(spec)]
    if not found:
        folder = Path(spec).parent
        names = [*(os.listdir(folder) if folder.is_dir() else []), *DATASETS]
        raise FileNotFoundError(
            f"{spec} does not exist.{similar_names(Path(spec).name, names)} `data` must be {_KINDS}, or one of "
            f"{', '.join(DATASETS)}, tfds:NAME."
        )
    return sorted(path.absolute() for path in found)


def _suffix(path: Path) -> str:
    name = path.name.lower()
    return ".tar.gz" if name.endswith(".tar.gz") else path.suffix.lower()
