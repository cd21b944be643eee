"""Vectors of pictures and captions by networks, computed once for each pair and kept through a killed run.

Not in Transform, which would run the networks again in each of its passes over the training pairs, and write their
weights, 110 MB, into each of its graphs; docs/features.md has the figures. The served model has the same modules in
front of the Transform graph.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.atomic import write_npz
from cmimh_tf.features.pair_vectors import compute_vectors
from cmimh_tf.features.progress import PairProgress
from cmimh_tf.features.registry import (
    DEFAULT_IMAGE_FEATURES,
    DEFAULT_TEXT_FEATURES,
    EMOJI_IMAGE_FEATURES,
    EMOJI_TEXT_FEATURES,
    has_network,
    image_features_version,
    text_features_version,
)
from pipeline import console
from pipeline.features import CAPTION, CAPTION_FEATURES, IMAGE, IMAGE_BYTES, IMAGE_FEATURES, TEXT

VERSIONS_FILE = "features.json"
_ROWS_AT_ONCE = 64
# Beside the inputs, which Examples keep.
_NAMES = {IMAGE: IMAGE_FEATURES, TEXT: CAPTION_FEATURES}


def default_features(source: str) -> tuple[str, str]:
    """Names of the features of pictures and of captions for a source without vectors."""
    if source == "emoji":
        return EMOJI_IMAGE_FEATURES, EMOJI_TEXT_FEATURES
    return DEFAULT_IMAGE_FEATURES, DEFAULT_TEXT_FEATURES


@dataclass(frozen=True)
class BlockFeatures:
    """Adds `image_features` and `caption_features` to pairs that have no vectors. Small and picklable.

    Attributes:
        image_features, text_features: names of `cmimh_tf.features.registry`. Those without a network are left to
            Transform.
        folder: where vectors are kept until all are computed; "" for nowhere.
        num_rows: of the whole source, for the time left.
    """

    image_features: str
    text_features: str
    folder: str = ""
    num_rows: int = 0

    @classmethod
    def in_cache(cls, image_features: str, text_features: str, cache: str, fingerprint: str) -> BlockFeatures:
        """With a folder below `cache` of its own for the data and the versions of the features."""
        if not cache or not fingerprint:
            return cls(image_features, text_features)
        versions = json.dumps([fingerprint, *feature_versions(image_features, text_features)])
        folder = Path(cache) / hashlib.sha256(versions.encode()).hexdigest()[:16]
        return cls(image_features, text_features, str(folder))

    def add(self, rows: Iterable[dict[str, Any]], start: int) -> Iterator[dict[str, Any]]:
        """The same rows with their vectors.

        Args:
            rows: features of tf.Examples, of consecutive rows of the source.
            start: the first one's row.
        """
        rows = iter(rows)
        while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
            for name, values in self._vectors(some, start).items():
                for features, vector in zip(some, values, strict=True):
                    features[name] = vector
            yield from some
            start += len(some)

    def clear(self) -> None:
        """Removes what was kept."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _vectors(self, rows: list[dict[str, Any]], start: int) -> dict[str, np.ndarray]:
        pictures = has_network(self.image_features) and IMAGE not in rows[0] and IMAGE_BYTES in rows[0]
        captions = has_network(self.text_features) and TEXT not in rows[0] and CAPTION in rows[0]
        if not pictures and not captions:
            return {}
        path = Path(self.folder) / f"{start:010d}.npz"
        if self.folder and path.exists():
            with np.load(path, allow_pickle=False) as archive:
                _progress(self.num_rows).skip(len(rows))
                return {name: archive[name] for name in archive.files}
        computed = compute_vectors(
            rows, self.image_features if pictures else "", self.text_features if captions else ""
        )
        vectors = {_NAMES[name]: values for name, values in computed.items()}
        if self.folder:
            write_npz(path, **vectors)
        _progress(self.num_rows).add(len(rows))
        return vectors


def feature_versions(image_features: str, text_features: str) -> tuple[str, str]:
    """Strings that change when the features would. A missing package is no error here: vectors may need no features."""
    versions = []
    for version, name in ((image_features_version, image_features), (text_features_version, text_features)):
        try:
            versions.append(version(name))
        except ImportError:
            versions.append(f"{name}@missing")
    return versions[0], versions[1]


@functools.lru_cache(maxsize=1)
def _progress(num_rows: int) -> PairProgress:
    """One a process; workers in several processes would each tell of their own pairs."""
    return PairProgress(num_rows, console.stream())
