"""Building, extending and rehashing an index from data.

A build of a folder stores its batches in a hidden folder beside it, which takes the name of the index when it is
complete: after a kill there is no index, and the same build continues with the next batch. Adding data and rehashing
are one change each; after a kill the index is as it was before.
"""

from __future__ import annotations

import itertools
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.files import locked_folder, remove_folder, write_json
from cmimh_tf.progress import ProgressBar
from cmimh_tf.search.adapters import DataSource, SourceItem
from cmimh_tf.search.api import Index, open_index
from cmimh_tf.search.engines.addresses import create_engine, is_folder_address, open_engine
from cmimh_tf.search.engines.embedded import check_absent
from cmimh_tf.search.engines.interface import Header, IndexBusy, View
from cmimh_tf.search.filters import LABELS, NUMBER, STRING
from cmimh_tf.search.items import SIDES, ItemBatch, ItemError
from cmimh_tf.search.models import HashingModel, ModelDescription
from cmimh_tf.search.ranking import real_valued_codes
from cmimh_tf.search.results import Added

_VECTORS_AT_ONCE = 4096
_RAW_AT_ONCE = 256
# 007 is a name, and so is 1_000; 12, -3.5 and 1e6 are numbers.
_NUMBER = re.compile(r"[-+]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
# The codes of some items, and their real-valued codes if the index keeps them: fields of `Index.add_codes`.
HashBatch = Callable[[Sequence[SourceItem]], dict[str, Any]]
_CODE_FILE_KEYS = ("ids", "image_codes", "text_codes", "image_features", "text_features", "captions", "pictures")


def build_index(
    out: str,
    described: ModelDescription,
    source: DataSource,
    *,
    keep_features: bool = False,
    hash_batch: HashBatch | None = None,
) -> Index:
    """Hashes data into a new index.

    Args:
        out: the address of the new index.
        described: the model, of `describe_model`.
        source: the data.
        keep_features: also store the real-valued codes.
        hash_batch: gives codes that the model made before; None loads the model and hashes.

    Returns:
        The index, opened.

    Raises:
        FileExistsError: if there is an index already.
        ValueError: for data that the model cannot hash.
    """
    header = Header(described.code_length, described.stamp, keep_features)
    recorded = {"data": source.spec, "fingerprint": source.fingerprint()}
    if not is_folder_address(out):
        with _incomplete_index(out, header) as index:
            _add_hashed(index, hash_batch or _hash_with(HashingModel(described), header), source)
        return open_index(out)
    key = {"header": header.to_json(), "source": recorded}
    with _hidden_folder(Path(out), header, key) as index:
        done = len(index)
        hash_batch = hash_batch or _hash_with(HashingModel(described), header)
        with ProgressBar(len(source), "hashing", "items", initial=done) as bar:
            for fields in _hashed_batches(hash_batch, header, source, done):
                index.add_codes(**fields)
                bar.update(len(fields["ids"]))
        with index.writing() as writer:
            writer.add_source(recorded)
    return open_index(out)


def build_from_codes(
    out: str, file: Path, *, described: ModelDescription | None = None, keep_features: bool = False
) -> Index:
    """Makes a new index of the codes in an .npz file; see `read_code_file`.

    Args:
        out: the address of the new index.
        file: the codes.
        described: the model that made them, if it is known.
        keep_features: also store the real-valued codes of the file.
    """
    fields = read_code_file(file, keep_features)
    code_length = 8 * next(fields[f"{side}_codes"].shape[1] for side in SIDES if f"{side}_codes" in fields)
    if described is not None and described.code_length != code_length:
        raise ValueError(f"`model` must have {code_length} bits, as the codes. Received: {described.code_length}.")
    header = Header(code_length, None if described is None else described.stamp, keep_features)
    if not is_folder_address(out):
        with _incomplete_index(out, header) as index:
            _add_code_arrays(index, fields)
    else:
        key = {"header": header.to_json(), "codes": str(file.absolute()), "changed": file.stat().st_mtime_ns}
        with _hidden_folder(Path(out), header, key) as index:
            # Adding is one change: what a killed build left is nothing or all.
            if not len(index):
                _add_code_arrays(index, fields)
    return open_index(out)


def add_data(index: Index, source: DataSource, model: str | Path | None = None) -> Added:
    """Hashes data with the model of an index and adds them, all or none.

    Raises:
        ModelMismatch: if `model` is not the model of the index.
    """
    if model is not None:
        index = Index(index.engine, model)
    return _add_hashed(index, _hash_with(index.model(), index.header), source)


def add_code_file(index: Index, file: Path) -> Added:
    """Adds the codes of an .npz file, all or none; see `read_code_file`."""
    return _add_code_arrays(index, read_code_file(file, index.header.keeps_features))


def _add_hashed(index: Index, hash_batch: HashBatch, source: DataSource) -> Added:
    with index.writing() as writer, ProgressBar(len(source), "hashing", "items") as bar:
        for fields in _hashed_batches(hash_batch, writer.header, source):
            writer.add_codes(**fields)
            bar.update(len(fields["ids"]))
        writer.add_source({"data": source.spec, "fingerprint": source.fingerprint()})
        writer.finish()
        return Added(writer.added, writer.replaced)


def _add_code_arrays(index: Index, fields: dict[str, Any]) -> Added:
    count = len(fields["ids"])
    if len(set(fields["ids"])) < count:
        # Checked here, as an id may be repeated in another batch.
        seen: set[str] = set()
        for name in fields["ids"]:
            if name in seen:
                raise ItemError(f"`ids` must not repeat. Received: {name!r} twice.")
            seen.add(name)
    with index.writing() as writer, ProgressBar(count, "adding", "items") as bar:
        for start in range(0, count, 1 << 18):
            part = slice(start, start + (1 << 18))
            batch = {name: values[part] for name, values in fields.items() if name != "metadata"}
            metadata = {name: values[part] for name, values in fields["metadata"].items()}
            writer.add_codes(**batch, metadata=metadata or None)
            bar.update(len(batch["ids"]))
        writer.finish()
        return Added(writer.added, writer.replaced)


def read_code_file(file: Path, with_features: bool = False) -> dict[str, Any]:
    """The fields of `Index.add_codes` from an .npz file such as `python -m cmimh_tf.hash` writes.

    `image_codes` and `text_codes` are uint8 [N, L/8], `ids`, `captions` and `pictures` are strings, `labels` is 0/1
    [N, C] with the names in `classes`. Other arrays of N numbers or strings become metadata.

    Raises:
        FileNotFoundError, ValueError: if there is no such file, or it holds no codes.
    """
    if not file.is_file():
        raise FileNotFoundError(f"`codes` must be an .npz file. Received: {file}, which does not exist.")
    if not zipfile.is_zipfile(file):
        raise ValueError(f"`codes` must be an .npz file. Received: {file}, which is another kind of file.")
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # Damaged files raise errors of many kinds.
        raise ValueError(f"{file} must be an .npz file of arrays. Received: {error}.") from error
    sides = [side for side in SIDES if f"{side}_codes" in arrays]
    if not sides:
        raise ValueError(f"{file} must hold `image_codes` or `text_codes`. Received: {', '.join(arrays) or 'nothing'}.")
    count = len(arrays[f"{sides[0]}_codes"])
    wanted = [name for name in _CODE_FILE_KEYS if with_features or not name.endswith("_features")]
    fields: dict[str, Any] = {name: arrays[name] for name in wanted if name in arrays}
    fields["ids"] = (fields["ids"] if "ids" in fields else np.arange(count)).astype(str).tolist()
    metadata: dict[str, Any] = {
        name: array.tolist()
        for name, array in arrays.items()
        if name not in _CODE_FILE_KEYS and array.shape == (count,) and array.dtype.kind in "biufU"
    }
    if "labels" in arrays:
        labels = np.asarray(arrays["labels"], bool)
        classes = (
            arrays["classes"].tolist() if "classes" in arrays else [str(column) for column in range(labels.shape[1])]
        )
        metadata["label"] = [[classes[column] for column in np.flatnonzero(row)] for row in labels]
    return {**fields, "metadata": metadata}


def hash_items(
    hasher: HashingModel,
    header: Header,
    images: Sequence[Any] | None,
    texts: Sequence[Any] | None,
    captions: Sequence[str | None] | None = None,
    pictures: Sequence[str | None] | None = None,
) -> dict[str, Any]:
    """The fields of `Index.add_codes` for pictures and texts, of which each may be None."""
    fields: dict[str, Any] = {}
    for side, inputs, hash_all in (("image", images, hasher.hash_images), ("text", texts, hasher.hash_texts)):
        if inputs is None:
            continue
        present = np.array([one is not None for one in inputs], bool)
        codes = np.zeros((len(inputs), header.code_length // 8), np.uint8)
        logits = np.zeros((len(inputs), header.code_length), np.float32)
        if present.any():
            codes[present], logits[present] = hash_all([one for one in inputs if one is not None])
        fields |= {f"{side}_codes": codes, f"has_{side}": present}
        if header.keeps_features:
            fields[f"{side}_features"] = real_valued_codes(logits)
    if captions is None and texts is not None:
        captions = [one if isinstance(one, str) else None for one in texts]
    if pictures is None and images is not None:
        pictures = [str(Path(one).absolute()) if isinstance(one, str | Path) else None for one in images]
    return {**fields, "captions": captions, "pictures": pictures}


def _hash_with(hasher: HashingModel, header: Header) -> HashBatch:
    return lambda batch: hash_items(hasher, header, [item.image for item in batch], [item.text for item in batch])


def _hashed_batches(
    hash_batch: HashBatch, header: Header, source: DataSource, start: int = 0
) -> Iterator[dict[str, Any]]:
    """The fields of `Index.add_codes` for batches of the data, from record number `start` on."""
    kinds = metadata_kinds(source, header.columns)
    for batch in _batches(source.read(start)):
        yield {
            **hash_batch(batch),
            "ids": [item.id for item in batch],
            "captions": [item.caption for item in batch],
            "pictures": [item.picture for item in batch],
            "metadata": [converted_metadata(item, kinds) for item in batch],
        }


def _batches(items: Iterator[SourceItem]) -> Iterator[list[SourceItem]]:
    for first in items:
        is_vector = isinstance(first.image, np.ndarray) and isinstance(first.text, np.ndarray)
        size = _VECTORS_AT_ONCE if is_vector else _RAW_AT_ONCE
        yield [first, *itertools.islice(items, size - 1)]


def metadata_kinds(source: DataSource, columns: Mapping[str, str]) -> dict[str, str]:
    """The kinds of the metadata in a CSV file, where every value is a string; {} for data that have kinds already.

    Args:
        source: the data.
        columns: the kinds of the columns that an index has already.
    """
    kinds: dict[str, str] = {}
    for row in source.plain_strings() if source.has_plain_strings else ():
        for name, value in row.items():
            if value != "" and kinds.get(name) != STRING:
                kinds[name] = NUMBER if _NUMBER.fullmatch(value.strip()) else STRING
    return kinds | {name: kind for name, kind in columns.items() if name in kinds}


def converted_metadata(item: SourceItem, kinds: Mapping[str, str]) -> dict[str, Any]:
    """The metadata of an item, with strings brought to the kinds of `metadata_kinds`.

    Raises:
        ItemError: if a string is no number, but the column has numbers.
    """
    return {name: _converted(value, kinds.get(name), name, item) for name, value in item.metadata.items()}


def _converted(value: Any, kind: str | None, name: str, item: SourceItem) -> Any:
    if kind == LABELS and isinstance(value, str):
        return [label.strip() for label in value.split("|") if label.strip()]
    if kind != NUMBER:
        return value
    text = value.strip()
    try:
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
    except ValueError as error:
        raise ItemError(f"{item.place}: `{name}` must be a number, as in the index. Received: {value!r}.") from error


@contextmanager
def _hidden_folder(out: Path, header: Header, key: dict[str, Any]) -> Iterator[Index]:
    """An index that becomes `out` when the block ends. If it does not end, the same build finds what is there."""
    check_absent(out)
    hidden = out.parent / f".{out.name}.building"

    def in_use(process: str) -> IndexBusy:
        return IndexBusy(f"{out} is being built by another process (process {process}).")

    with locked_folder(hidden, in_use):
        known = hidden / "build.json"
        if not _holds(known, key):
            remove_folder(hidden / "index")
            write_json(known, key)
        if not (hidden / "index").exists():
            create_engine(str(hidden / "index"), header)
        with Index(open_engine(str(hidden / "index"))) as index:
            yield index
        (hidden / "index").rename(out)
        remove_folder(hidden)


def _holds(file: Path, key: dict[str, Any]) -> bool:
    try:
        return json.loads(file.read_text(encoding="utf-8")) == json.loads(json.dumps(key))
    except (OSError, ValueError):
        return False


@contextmanager
def _incomplete_index(out: str, header: Header) -> Iterator[Index]:
    """An index in a database that cannot be opened before it is complete."""
    create_engine(out, replace(header, complete=False))
    with Index(open_engine(out)) as index:
        yield index


def rehash_index(index: Index, described: ModelDescription, sources: Sequence[DataSource] = ()) -> int:
    """Replaces all codes of an index by those of another model, in one step.

    Items are hashed from the data that they were read from, if it is still there. Others are hashed from their stored
    captions and pictures.

    Args:
        index: the index.
        described: the new model, of `describe_model`.
        sources: further data to find the items in; those that the index has recorded are used as well.

    Returns:
        The number of items.

    Raises:
        ValueError: if an item cannot be hashed, naming the first one; the index is as it was before.
    """
    hasher = HashingModel(described)
    counted = 0

    def make(view: View) -> tuple[Header, Iterator[ItemBatch]]:
        nonlocal counted
        header = replace(view.header, code_length=described.code_length, model=described.stamp)
        rehashed = _Rehashed(view, header, hasher)
        with ProgressBar(len(rehashed.rows), "hashing", "items") as bar:
            for source in (*sources, *_recorded(view.header)):
                rehashed.from_source(source, bar)
            rehashed.from_stored(bar)
        counted = len(rehashed.rows)
        return header, rehashed.batches()

    index.engine.replace_codes(make)
    return counted


def _recorded(header: Header) -> Iterator[DataSource]:
    """The data that an index was made of, as far as they are still there; the last ones first."""
    for source in reversed(header.sources):
        try:
            yield DataSource(source["data"])
        except (OSError, ValueError):
            continue


class _Rehashed:
    """New codes of all items of an index.

    Args:
        view: of the index.
        header: of the new index.
        hasher: the new model.
    """

    def __init__(self, view: View, header: Header, hasher: HashingModel):
        self.view = view
        self.header = header
        self.hasher = hasher
        self.rows = view.all_rows()
        count, code_length = len(self.rows), header.code_length
        self.needed = {side: view.has_side(side, self.rows) for side in SIDES}
        self.missing = {side: needed.copy() for side, needed in self.needed.items()}
        self.codes = {side: np.zeros((count, code_length // 8), np.uint8) for side in SIDES}
        width = code_length if header.keeps_features else 0
        self.features = {side: np.zeros((count, width), np.float16) for side in SIDES}

    def from_source(self, source: DataSource, bar: ProgressBar) -> None:
        """Hashes the items that are in some data, unless they were changed since."""
        if not any(missing.any() for missing in self.missing.values()):
            return
        for batch in _batches(source.read()):
            rows = self.view.rows_of([item.id for item in batch])
            known = [(row, item) for row, item in zip(rows, batch, strict=True) if row >= 0]
            stored = self.view.items(np.array([row for row, _ in known], np.int64))
            same = [
                (row, item)
                for (row, item), old in zip(known, stored, strict=True)
                if (item.caption, item.picture) == (old.caption, old.picture)
            ]
            places = np.searchsorted(self.rows, [row for row, _ in same]).astype(np.int64)
            self._fill("image", places, [item.image for _, item in same], bar)
            self._fill("text", places, [item.text for _, item in same], bar)

    def from_stored(self, bar: ProgressBar) -> None:
        """Hashes what is left from the stored captions and pictures.

        Raises:
            ValueError: if there is none, naming the item.
        """
        places = np.flatnonzero(np.logical_or(*self.missing.values()))
        for start in range(0, len(places), _RAW_AT_ONCE):
            part = places[start : start + _RAW_AT_ONCE]
            items = self.view.items(self.rows[part])
            for side, values in (
                ("image", [item.picture for item in items]),
                ("text", [item.caption for item in items]),
            ):
                chosen = self.missing[side][part]
                inputs = [value for value, is_chosen in zip(values, chosen, strict=True) if is_chosen]
                if None in inputs:
                    name = items[int(np.flatnonzero(chosen)[inputs.index(None)])].id
                    raise ValueError(
                        f"Every item must be hashed again, from the data that it came from or from a stored caption or "
                        f"picture. Received: neither for the {side} of id {name!r}. Name the data: --data DATA"
                    )
                self._fill(side, part[chosen], inputs, bar)

    def _fill(self, side: str, places: np.ndarray, inputs: Sequence[Any], bar: ProgressBar) -> None:
        chosen = self.missing[side][places] if len(places) else np.empty(0, bool)
        wanted = [one for one, is_chosen in zip(inputs, chosen, strict=True) if is_chosen]
        if not wanted:
            return
        at = places[chosen]
        codes, logits = (self.hasher.hash_images if side == "image" else self.hasher.hash_texts)(wanted)
        self.codes[side][at] = codes
        if self.header.keeps_features:
            self.features[side][at] = real_valued_codes(logits)
        self.missing[side][at] = False
        bar.update(int((~self.missing["image"][at] & ~self.missing["text"][at]).sum()))

    def batches(self) -> Iterator[ItemBatch]:
        """The codes of all items, in the order of the rows."""
        for start in range(0, len(self.rows), 1 << 16):
            part = slice(start, start + (1 << 16))
            sides = [side for side in SIDES if self.needed[side][part].any()]
            yield ItemBatch(
                self.view.ids(self.rows[part]),
                {side: self.codes[side][part] for side in sides},
                {side: self.needed[side][part] for side in sides},
                {side: self.features[side][part] for side in sides if self.header.keeps_features},
            )
