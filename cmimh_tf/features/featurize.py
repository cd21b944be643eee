"""From a source of pictures and captions to an .npz of vectors: batched, in parts that survive a killed process.

Each block of the source becomes one part beside the output. A part is there in full or not at all, and those that are
there are not computed again. At the end the parts are copied into the output one after the other, so that memory does
not grow with the data.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.atomic import atomic_write, write_json, write_npz
from cmimh_tf.data.records import PairReader, PairRecord
from cmimh_tf.features.batches import VectorComputer
from cmimh_tf.features.progress import PairProgress
from cmimh_tf.features.registry import (
    image_features_version,
    make_image_features,
    make_text_features,
    text_features_version,
)


def featurize(reader: PairReader, out: Path, *, image_features: str, text_features: str) -> int:
    """Writes `image`, `text`, `ids`, and `labels`, `captions`, `classes` where there are some, to `out`.

    Vectors that the source has already are taken as they are.

    Args:
        reader: of `open_records`.
        out: the .npz to write; parts go to `<out>.parts` until it is complete.
        image_features, text_features: names of `cmimh_tf.features.registry`.

    Returns:
        The number of pairs.

    Raises:
        DataError: naming the record that is wrong.
        ValueError: for features that are fitted, which need to know the training pairs.
    """
    if text_features == "bag_of_words":
        raise ValueError(
            "`text_features` must not be fitted here, where no training pairs are known: `pipeline/run_local.py` fits "
            "bag_of_words. Received: 'bag_of_words'."
        )
    index = reader.index()
    identity = {
        "data": reader.fingerprint(),
        "image_features": image_features_version(image_features),
        "text_features": text_features_version(text_features),
    }
    folder = out.with_name(f"{out.name}.parts")
    _claim(folder, identity)
    is_used = index.is_used()
    progress = PairProgress(int(is_used.sum()))
    computer = None
    parts = []
    for start, stop in index.blocks:
        part = folder / f"{start:010d}.npz"
        count = int(is_used[start:stop].sum())
        if not count:
            continue
        parts.append(part)
        if part.exists():
            progress.skip(count)
            continue
        if computer is None:
            computer = VectorComputer(make_image_features(image_features), make_text_features(text_features))
        records = [record for row, record in enumerate(reader.read(start, stop), start) if is_used[row]]
        write_npz(part, **_arrays(records, computer))
        progress.add(count)
    _merge(parts, out, index.classes)
    shutil.rmtree(folder)
    return progress.total


def _claim(folder: Path, identity: dict[str, str]) -> None:
    """Keeps the parts of an earlier run of the same work, and drops those of other data or features."""
    path = folder / "identity.json"
    if not path.exists() or json.loads(path.read_text(encoding="utf-8")) != identity:
        shutil.rmtree(folder, ignore_errors=True)
        write_json(path, identity)


def _arrays(records: Sequence[PairRecord], computer: VectorComputer) -> dict[str, np.ndarray]:
    first = records[0]
    if first.image is not None:
        image = _stacked(records, "image")
    else:
        image = np.concatenate(list(computer.images([record.image_bytes or b"" for record in records])))
    if first.text is not None:
        text = _stacked(records, "text")
    else:
        text = np.concatenate(list(computer.texts([record.caption or "" for record in records])))
    arrays: dict[str, Any] = {"image": image, "text": text, "ids": np.array([record.id for record in records])}
    if first.labels is not None:
        arrays["labels"] = _stacked(records, "labels")
    if first.caption is not None:
        arrays["captions"] = np.array([record.caption for record in records])
    return arrays


def _stacked(records: Sequence[PairRecord], name: str) -> np.ndarray:
    return np.stack([np.asarray(getattr(record, name)) for record in records])


def _merge(parts: Sequence[Path], out: Path, classes: Sequence[str] | None) -> None:
    """One .npz of all parts; of each array only one part is in memory."""
    with np.load(parts[0]) as first:
        names = first.files
    with atomic_write(out) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            shapes, types = zip(*(_shape_and_type(part, name) for part in parts), strict=True)
            # Of strings the longest decides.
            dtype = np.result_type(*types)
            header = {
                "descr": np.lib.format.dtype_to_descr(dtype),
                "fortran_order": False,
                "shape": (sum(shape[0] for shape in shapes), *shapes[0][1:]),
            }
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for part in parts:
                    with np.load(part) as arrays:
                        member.write(np.ascontiguousarray(arrays[name], dtype).tobytes())
        if classes is not None and "labels" in names:
            with archive.open("classes.npy", "w") as member:
                np.lib.format.write_array(member, np.array(classes))


def _shape_and_type(part: Path, name: str) -> tuple[tuple[int, ...], np.dtype]:
    with np.load(part) as arrays:
        array = arrays[name]
    return array.shape, array.dtype
