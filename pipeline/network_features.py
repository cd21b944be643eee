"""Features of pictures and captions by neural networks: computed once per pair, in ExampleGen.

Transform is not the place for them: it would run the networks in each of its passes over the training pairs, and write
their weights (110 MB) into each of its graphs. docs/features.md has the figures. The served model runs the same
networks in front of the Transform graph.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from cmimh_tf.features.compute import compute_vectors
from cmimh_tf.features.registry import (
    has_network,
    image_features_version,
    text_features_version,
)
from cmimh_tf.files import remove_folder, write_npz
from cmimh_tf.progress import ProgressBar
from pipeline import console
from pipeline.examples import CAPTION, CAPTION_FEATURES, IMAGE, IMAGE_BYTES, IMAGE_FEATURES, TEXT

VERSIONS_FILE = "features.json"
_ROWS_PER_FILE = 64


def feature_versions(image_features: str, text_features: str) -> tuple[str, str]:
    """Strings that change whenever the features change.

    A missing package is not an error here, because data that already hold vectors do not need it.
    """
    versions = []
    for version, name in ((image_features_version, image_features), (text_features_version, text_features)):
        try:
            versions.append(version(name))
        except ImportError:
            versions.append(f"{name}@missing")
    return versions[0], versions[1]


@dataclass(frozen=True)
class NetworkFeatures:
    """Adds `image_features` and `caption_features` to pairs that have no vectors. Small and picklable.

    Attributes:
        image_features, text_features: names of `cmimh_tf.features.registry`. Features without a network are computed
            in Transform.
        folder: where vectors are kept until all are computed, so that an interrupted run can resume; "" for nowhere.
        num_rows: rows of the whole source, for the progress bar.
    """

    image_features: str
    text_features: str
    folder: str = ""
    num_rows: int = 0

    @classmethod
    def in_cache(cls, image_features: str, text_features: str, cache: str, fingerprint: str) -> NetworkFeatures:
        """Keeps the vectors in a folder below `cache` whose name depends on the data and the features' versions."""
        if not cache or not fingerprint:
            return cls(image_features, text_features)
        versions = json.dumps([fingerprint, *feature_versions(image_features, text_features)])
        folder = Path(cache) / hashlib.sha256(versions.encode()).hexdigest()[:16]
        return cls(image_features, text_features, str(folder))

    def add(self, rows: Iterable[dict[str, Any]], start: int) -> Iterator[dict[str, Any]]:
        """Yields the same rows with their vectors.

        Args:
            rows: features of tf.Examples, of consecutive rows of the source.
            start: the number of the first row.
        """
        rows = iter(rows)
        while some := list(itertools.islice(rows, _ROWS_PER_FILE)):
            for name, values in self._vectors(some, start).items():
                for features, vector in zip(some, values, strict=True):
                    features[name] = vector
            yield from some
            start += len(some)

    def clear(self) -> None:
        """Removes the kept vectors."""
        if self.folder:
            remove_folder(self.folder)

    def _vectors(self, rows: list[dict[str, Any]], start: int) -> dict[str, np.ndarray]:
        pictures = has_network(self.image_features) and IMAGE not in rows[0] and IMAGE_BYTES in rows[0]
        captions = has_network(self.text_features) and TEXT not in rows[0] and CAPTION in rows[0]
        if not pictures and not captions:
            return {}
        path = Path(self.folder) / f"{start:010d}.npz"
        if self.folder and path.exists():
            with np.load(path, allow_pickle=False) as archive:
                vectors = {name: archive[name] for name in archive.files}
            self._show_progress(len(rows), is_new=False)
            return vectors
        computed = compute_vectors(
            rows, self.image_features if pictures else "", self.text_features if captions else ""
        )
        # The inputs stay in the Examples, so the vectors need names of their own.
        names = {IMAGE: IMAGE_FEATURES, TEXT: CAPTION_FEATURES}
        vectors = {names[name]: values for name, values in computed.items()}
        if self.folder:
            write_npz(path, **vectors)
        self._show_progress(len(rows), is_new=True)
        return vectors

    def _show_progress(self, count: int, is_new: bool) -> None:
        bar = _progress_bar(self.num_rows, console.stream())
        if not is_new:  # Rows of an earlier run must not count towards the speed.
            bar.initial += count
            bar.n += count
        else:
            bar.update(count)
        if bar.n >= bar.total:
            bar.close()
            _progress_bar.cache_clear()


@functools.lru_cache(maxsize=1)
def _progress_bar(num_rows: int, stream: TextIO) -> ProgressBar:
    """One bar per process. With several Beam workers, each process shows its own rows."""
    return ProgressBar(num_rows, "features", "pairs", stream=stream)
