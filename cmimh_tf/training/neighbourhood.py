"""The neighbourhood of each training pair, whose mean its codes reconstruct.

In the paper each pair reconstructs itself, so that a code spends bits on details of one picture or one sentence.
Without labels, the nearest pairs in both feature spaces together are the best approximation of pairs with a common
label. Reconstructing their mean keeps the information that neighbours have in common.

Up to `EXACT_PAIRS` pairs are compared with each other. More are searched with an inverted file (faiss) of reduced
vectors, one byte per dimension; the candidates that it finds are compared by their full vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cmimh_tf.checksums import DamagedFile, verify
from cmimh_tf.config import NeighbourhoodConfig
from cmimh_tf.files import TEMPORARY_PREFIX, atomic_write, remove_folder
from cmimh_tf.layers import moments
from cmimh_tf.progress import ProgressBar
from cmimh_tf.stored_rows import BLOCK_ROWS, Rows, StoredRows, open_rows, store_rows

EXACT_PAIRS = 50_000
_SAMPLED_ROWS = 2000
_PCA_ROWS = 10_000
_REDUCED_UNITS = 256
_LISTS_PER_ROOT = 4
_PROBED_LISTS = 32
_SAMPLES_PER_LIST = 40
# On MS-COCO repeated with noise to 1,000,000 pairs, recall is 0.91 with two candidates per neighbour, 1.00 with three.
_CANDIDATES_PER_NEIGHBOUR = 3


def find_neighbourhood(
    image: Rows, text: Rows, options: NeighbourhoodConfig, folder: Path | None = None
) -> dict[str, Rows]:
    """Finds the neighbours of all pairs and what the codes of the pairs reconstruct.

    Args:
        image: [pairs, image_units] features.
        text: [pairs, text_units] features.
        options: how many neighbours, and how the two similarities are weighed.
        folder: keeps what takes long, so that the next call with the same pairs and options reads it from there: the
            neighbours of more than `EXACT_PAIRS` pairs, and the targets of stored rows. None keeps nothing.

    Returns:
        "image_target" and "text_target", float32 of the shapes of `image` and `text`: arrays for arrays, and stored
        rows for stored rows. Empty if `options.neighbours` is 0, or there is no other pair.
    """
    count = min(options.neighbours, len(image) - 1)
    if count < 1:
        return {}
    features = {"image": image, "text": text}
    if not any(isinstance(values, StoredRows) for values in features.values()):
        nearest = _kept_neighbours(image, text, count, options.text_similarity_weight, folder)
        return {
            f"{name}_target": neighbourhood_targets(np.asarray(values), nearest, options.own_share)
            for name, values in features.items()
        }
    if folder is None:
        # Files that are open can be read after they have been deleted.
        with TemporaryDirectory() as temporary:
            return find_neighbourhood(image, text, options, Path(temporary))
    if (folder / "targets").exists():
        # Damaged files are made again.
        with suppress(DamagedFile):
            return dict(open_rows(folder / "targets"))
        remove_folder(folder / "targets")
    nearest = _kept_neighbours(image, text, count, options.text_similarity_weight, folder)
    return dict(_store_targets(features, nearest, options.own_share, folder))


def nearest_pairs(image: Rows, text: Rows, count: int, text_weight: float) -> np.ndarray:
    """The nearest other pairs by (1 - w) z(cos of images) + w z(cos of texts), w = `text_weight`.

    The cosines are of centred features, and z brings each modality's to zero mean and unit deviation, as one modality
    may spread its cosines far less than the other.

    Args:
        image: [pairs, image_units] features.
        text: [pairs, text_units] features.
        count: neighbours per pair, less than the number of pairs.
        text_weight: between 0 and 1.

    Returns:
        int32 [pairs, count], nearest first; exact up to `EXACT_PAIRS` pairs.
    """
    joint = JointVectors(image, text, text_weight)
    return exact_neighbours(joint, count) if len(joint) <= EXACT_PAIRS else indexed_neighbours(joint, count)


class JointVectors:
    """Vectors of pairs whose inner product is the weighted sum of both modalities' similarities.

    Args:
        image, text, text_weight: as for `nearest_pairs`.
    """

    def __init__(self, image: Rows, text: Rows, text_weight: float):
        self._parts = []
        for features, weight in ((image, 1.0 - text_weight), (text, text_weight)):
            centre = moments(features)[1].astype(np.float32)
            sample = _unit_rows(features[_even_rows(features, _SAMPLED_ROWS)], centre)
            # The mean cosine of centred rows is nearly the same for all blocks: only the deviation matters here.
            deviation = np.maximum(np.std(sample @ sample.T, dtype=np.float64), 1e-12)
            self._parts.append((features, centre, np.float32(np.sqrt(weight / deviation))))

    def __len__(self) -> int:
        return len(self._parts[0][0])

    def __getitem__(self, rows: Any) -> np.ndarray:
        """float32 [rows, image_units + text_units] for a slice or an array of row numbers."""
        return np.concatenate([scale * _unit_rows(values[rows], centre) for values, centre, scale in self._parts], 1)


def exact_neighbours(joint: JointVectors, count: int) -> np.ndarray:
    """The rows with the largest inner products, among all other rows: int32 [rows, count], nearest first."""
    vectors = np.concatenate([joint[start : start + BLOCK_ROWS] for start in range(0, len(joint), BLOCK_ROWS)])
    nearest = np.empty((len(vectors), count), np.int32)
    for start in range(0, len(vectors), BLOCK_ROWS):
        similarity = vectors[start : start + BLOCK_ROWS] @ vectors.T
        own = np.arange(len(similarity))
        similarity[own, start + own] = -np.inf
        nearest[start : start + len(own)] = _largest(similarity, count)
    return nearest


def indexed_neighbours(joint: JointVectors, count: int) -> np.ndarray:
    """As `exact_neighbours`, with most of the same rows, in time and memory for millions of rows.

    Raises:
        ImportError: if faiss is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            f"Neighbours of more than {EXACT_PAIRS:,} pairs need faiss. Install with: pip install faiss-cpu"
        ) from error
    num_lists = max(1, min(round(_LISTS_PER_ROOT * np.sqrt(len(joint))), len(joint) // _SAMPLES_PER_LIST))
    axes = _principal_axes(joint[_even_rows(joint, _PCA_ROWS)], _REDUCED_UNITS)
    units = axes.shape[1]
    lists = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(units), units, num_lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    lists.nprobe = _PROBED_LISTS
    sample = _even_rows(joint, _SAMPLES_PER_LIST * num_lists)
    parts = [sample[start : start + BLOCK_ROWS] for start in range(0, len(sample), BLOCK_ROWS)]
    lists.train(np.concatenate([joint[part] @ axes for part in parts]))
    with ProgressBar(2 * len(joint), "neighbours", "pairs") as bar:
        for start in range(0, len(joint), BLOCK_ROWS):
            lists.add(joint[start : start + BLOCK_ROWS] @ axes)
            bar.update(min(BLOCK_ROWS, len(joint) - start))
        nearest = np.empty((len(joint), count), np.int32)
        # List by list, so that the candidates of a block are mostly the same rows, which are read once.
        order = np.concatenate([_list_members(lists.invlists, number) for number in range(lists.nlist)])
        for start in range(0, len(order), BLOCK_ROWS):
            rows = order[start : start + BLOCK_ROWS]
            queries = joint[rows]
            candidates = lists.search(queries @ axes, _CANDIDATES_PER_NEIGHBOUR * count + 1)[1]
            nearest[rows] = _nearest_candidates(joint, rows, queries, candidates, count)
            bar.update(len(rows))
    return nearest


def neighbourhood_targets(features: np.ndarray, rows: np.ndarray, own_share: float) -> np.ndarray:
    """own_share * x + (1 - own_share) * mean of the neighbours, stretched about the centre to the spread of `features`.

    Averaging shrinks the spread; without the stretch the reconstruction would weigh less than its weight says.

    Args:
        features: [pairs, units] array.
        rows: int [pairs, neighbours].
        own_share: between 0 and 1.

    Returns:
        float32 [pairs, units].
    """
    smoothing = _Smoothing(features, rows, own_share)
    smoothed = np.concatenate([smoothing.block(start) for start in range(0, len(features), BLOCK_ROWS)])
    return smoothing.stretched(smoothed)


class _Smoothing:
    """Neighbourhood means, block by block, and the stretch that gives them the spread of the features."""

    def __init__(self, features: Rows, rows: np.ndarray, own_share: float):
        self.features, self.rows, self.own_share = features, rows, own_share
        num_rows, mean, mean_squared_norm = moments(features)
        self.centre = mean.astype(np.float32)
        self.squares, self.smoothed_squares = num_rows * mean_squared_norm, 0.0

    def block(self, start: int) -> np.ndarray:
        """own_share * x + (1 - own_share) * mean of the neighbours, of centred features: float32 [block, units]."""
        rows = self.rows[start : start + BLOCK_ROWS]
        neighbours, position = np.unique(rows, return_inverse=True)
        position = position.reshape(rows.shape)
        centred = np.asarray(self.features[neighbours], np.float32) - self.centre
        own = np.asarray(self.features[start : start + BLOCK_ROWS], np.float32) - self.centre
        smoothed = np.float32(self.own_share) * own
        for column in position.T:
            smoothed += np.float32((1.0 - self.own_share) / rows.shape[1]) * centred[column]
        self.smoothed_squares += float(np.sum(np.square(smoothed), dtype=np.float64))
        return smoothed

    def stretched(self, smoothed: np.ndarray) -> np.ndarray:
        """The targets, once every block has been computed."""
        stretch = np.sqrt(self.squares / self.smoothed_squares) if self.smoothed_squares > 0 else 1.0
        return self.centre + np.float32(stretch) * smoothed


def _kept_neighbours(image: Rows, text: Rows, count: int, text_weight: float, folder: Path | None) -> np.ndarray:
    """`nearest_pairs`, kept in a file if it takes minutes."""
    if folder is None or len(image) <= EXACT_PAIRS:
        return nearest_pairs(image, text, count, text_weight)
    file = folder / "neighbours.npy"
    if file.exists():
        with suppress(DamagedFile):
            verify(file)
            return np.load(file)
    nearest = nearest_pairs(image, text, count, text_weight)
    with atomic_write(file, checksum=True) as target:
        np.save(target, nearest)
    return nearest


def _store_targets(features: dict[str, Rows], rows: np.ndarray, own_share: float, folder: Path) -> dict[str, Rows]:
    """`neighbourhood_targets` in files. Means are written first: the stretch is known when all of them are."""
    smoothing = {f"{name}_target": _Smoothing(values, rows, own_share) for name, values in features.items()}

    def means() -> Iterator[dict[str, np.ndarray]]:
        with ProgressBar(len(rows), "neighbourhoods", "pairs") as bar:
            for start in range(0, len(rows), BLOCK_ROWS):
                yield {name: one.block(start) for name, one in smoothing.items()}
                bar.update(min(BLOCK_ROWS, len(rows) - start))

    for unfinished in (folder / "means", *folder.glob(f"{TEMPORARY_PREFIX}*")):
        remove_folder(unfinished)
    stored = store_rows(folder / "means", means())
    blocks = (
        {name: one.stretched(stored[name][start : start + BLOCK_ROWS]) for name, one in smoothing.items()}
        for start in range(0, len(rows), BLOCK_ROWS)
    )
    targets = store_rows(folder / "targets", blocks)
    remove_folder(folder / "means")
    return dict(targets)


def _even_rows(rows: Rows | JointVectors, most: int) -> np.ndarray:
    """Evenly spaced row numbers, about `most`."""
    return np.arange(0, len(rows), max(1, len(rows) // most))


def _principal_axes(vectors: np.ndarray, most: int) -> np.ndarray:
    """The orthogonal directions in which `vectors` are longest, about those of all rows: float32 [units, axes]."""
    # By NumPy: faiss.PCAMatrix takes ten times as long.
    axes = np.linalg.eigh(vectors.T.astype(np.float64) @ vectors)[1]
    return np.ascontiguousarray(axes[:, ::-1][:, :most], np.float32)


def _list_members(lists: Any, number: int) -> np.ndarray:
    import faiss

    size = lists.list_size(number)
    return faiss.rev_swig_ptr(lists.get_ids(number), size).copy() if size else np.empty(0, np.int64)


def _nearest_candidates(
    joint: JointVectors, rows: np.ndarray, queries: np.ndarray, candidates: np.ndarray, count: int
) -> np.ndarray:
    """The best of each row's candidates by the full vectors, without the row itself: int32 [rows, count]."""
    # Too few rows in the probed lists leave -1; the row itself stands in, as it is nobody's neighbour.
    candidates = np.where(candidates < 0, rows[:, None], candidates)
    unique, position = np.unique(candidates, return_inverse=True)
    vectors = joint[unique]
    similarity = np.empty(candidates.shape, np.float32)
    for row, columns in enumerate(position.reshape(candidates.shape)):
        similarity[row] = vectors[columns] @ queries[row]
    similarity[candidates == rows[:, None]] = -np.inf
    return np.take_along_axis(candidates, _largest(similarity, count), axis=1).astype(np.int32)


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """The columns of the `count` largest values of each row, largest first."""
    columns = np.argpartition(-values, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(values, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def _unit_rows(features: np.ndarray, centre: np.ndarray) -> np.ndarray:
    centred = np.asarray(features, np.float32) - centre
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred / np.maximum(norms, np.finfo(np.float32).tiny)
