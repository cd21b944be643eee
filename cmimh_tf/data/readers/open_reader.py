"""Which reader a path or a name stands for."""

from __future__ import annotations

import glob
from pathlib import Path

from cmimh_tf.data.records import DataError, PairReader

EMBEDDED_DATASETS = ("emoji", "synthetic")
DOWNLOADED_DATASETS = ("mirflickr25k", "nuswide", "mscoco")
DATASETS = EMBEDDED_DATASETS + DOWNLOADED_DATASETS

TFDS_PREFIX = "tfds:"
_TABLE_SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet")
_KINDS = "an .npz, a table (.csv, .jsonl, .parquet), WebDataset shards (.tar) or TFRecords"


def open_reader(spec: str) -> PairReader:
    """See `cmimh_tf.data.records.open_records`."""
    if spec in EMBEDDED_DATASETS:
        return _embedded(spec)
    if spec.split("/")[0] in DOWNLOADED_DATASETS and not Path(spec).exists():
        spec = f"{TFDS_PREFIX}{spec}"
    if spec.startswith(TFDS_PREFIX):
        from cmimh_tf.data.readers.tfds_data import TfdsReader

        return TfdsReader.open(spec.removeprefix(TFDS_PREFIX))
    path = Path(spec)
    if path.is_dir():
        return _folder(path)
    paths = _files(spec)
    suffix = _suffix(paths[0])
    if suffix in _TABLE_SUFFIXES or suffix == ".npz":
        if len(paths) > 1:
            raise DataError(f"{spec}: only TFRecords and .tar shards may be several files. Received: {len(paths)}.")
        return _single_file(paths[0], suffix)
    return _shards(spec, paths, suffix)


def _embedded(name: str) -> PairReader:
    if name == "emoji":
        from cmimh_tf.data.readers.emoji import EmojiReader

        return EmojiReader()
    from cmimh_tf.data.readers.vectors import SyntheticReader

    return SyntheticReader()


def _single_file(path: Path, suffix: str) -> PairReader:
    if suffix == ".npz":
        from cmimh_tf.data.readers.vectors import NpzReader

        return NpzReader(path)
    if suffix == ".csv":
        from cmimh_tf.data.readers.csv_table import CsvReader

        return CsvReader(path)
    if suffix == ".parquet":
        from cmimh_tf.data.readers.parquet_table import ParquetReader

        return ParquetReader(path)
    from cmimh_tf.data.readers.json_lines import JsonLinesReader

    return JsonLinesReader(path)


def _shards(spec: str, paths: list[Path], suffix: str) -> PairReader:
    if suffix in (".tar", ".tar.gz", ".tgz"):
        from cmimh_tf.data.readers.tar_shards import TarReader

        return TarReader(spec, tuple(paths))
    from cmimh_tf.data.readers.tfrecords import TFRecordReader

    return TFRecordReader(spec, tuple(paths))


def _folder(folder: Path) -> PairReader:
    """A prepared TFDS data set, pictures with one table, tar shards, or TFRecords."""
    folder = folder.absolute()
    if (folder / "dataset_info.json").is_file():
        from cmimh_tf.data.readers.tfds_data import TfdsReader

        return TfdsReader(str(folder))
    tables = sorted(path for path in folder.iterdir() if _suffix(path) in (*_TABLE_SUFFIXES, ".npz"))
    if len(tables) > 1:
        names = ", ".join(path.name for path in tables)
        raise DataError(f"{folder}: must have one table, or `data` must name one of them. Received: {names}.")
    if tables:
        return _single_file(tables[0], _suffix(tables[0]))
    shards = sorted(path for path in folder.iterdir() if _suffix(path) in (".tar", ".tar.gz", ".tgz"))
    if shards:
        return _shards(str(folder), shards, ".tar")
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    pictures = [path for path in files if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".gif", ".bmp")]
    if pictures:
        raise DataError(
            f"{folder}: must have a table of the pictures' captions: captions.csv, .jsonl or .parquet with the columns "
            f"image and text. Received: {len(pictures):,} pictures without one."
        )
    if not files:
        raise FileNotFoundError(f"`data` must be {_KINDS}. Received: {folder}, where there is nothing.")
    # A description beside the records is not one of them.
    return _shards(str(folder), sorted(path for path in files if path.suffix.lower() != ".json") or files, "")


def _files(spec: str) -> list[Path]:
    """The files of a path or a pattern, in alphabetical order."""
    found = [Path(spec)] if Path(spec).is_file() else [Path(name) for name in glob.glob(spec)]
    if not found:
        raise FileNotFoundError(
            f"`data` must be {_KINDS} that exists, or one of {', '.join(DATASETS)}, tfds:NAME. Received: {spec}."
        )
    return sorted(path.absolute() for path in found)


def _suffix(path: Path) -> str:
    name = path.name.lower()
    return ".tar.gz" if name.endswith(".tar.gz") else path.suffix.lower()
