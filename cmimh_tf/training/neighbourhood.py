"""Coordinates of the training pairs in a graph of nearest pairs, which the codes reconstruct.

In the paper each pair reconstructs its own features, so that a code spends bits on details of one picture or one
sentence. Without labels, the nearest pairs in both feature spaces together are the best approximation of pairs with a
common label. This module links every pair with its nearest pairs, and computes the coordinates of the pairs in that
graph: its smoothest functions, those that differ least between linked pairs (Laplacian eigenmaps). Pairs that many
short paths connect have similar coordinates, even if they are not neighbours themselves.

Up to `neighbourhood.landmarks` pairs, all of them make the graph. Of more, evenly spaced ones do, and every other pair
lies at the mean of its nearest landmarks, so that memory does not grow with the pairs.

Reference:
    Belkin, Niyogi: Laplacian Eigenmaps for Dimensionality Reduction and Data Representation. Neural Computation 2003.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cmimh_tf.checksums import DamagedFile
from cmimh_tf.config import NeighbourhoodConfig
from cmimh_tf.files import TEMPORARY_PREFIX, remove_folder
from cmimh_tf.layers import moments
from cmimh_tf.progress import ProgressBar
from cmimh_tf.stored_rows import BLOCK_ROWS, Rows, StoredRows, open_rows, store_rows

# The root-mean-square norm of the coordinates, as that of scaled features (`network.input_norm`).
_NORM = 10.0
# A coordinate is multiplied by its eigenvalue to this power: rough functions of the graph count less than smooth ones.
_SMOOTHING = 2.0
# Unless their number is given, a pair has one neighbour for a hundred pairs, within these limits.
_FEWEST_NEIGHBOURS, _MOST_NEIGHBOURS = 5, 30
# Lanczos iterations are faster for more rows; for fewer, all eigenvectors are exact where eigenvalues are equal.
_DENSE_ROWS = 1500
_SAMPLED_ROWS = 2000
_AXES_ROWS = 10_000
_SEARCHED_UNITS = 256
# On MS-COCO repeated with noise, 0.80 of the nearest landmarks are found without more candidates, and 0.99 with three.
_CANDIDATES_PER_NEIGHBOUR = 3


def find_neighbourhood(
    image: Rows, text: Rows, options: NeighbourhoodConfig, folder: Path | None = None
) -> dict[str, Rows]:
    """The coordinates that the codes of all pairs reconstruct.

    Args:
        image: [pairs, image_units] features of at least 2 pairs.
        text: [pairs, text_units] features.
        options: how many neighbours and coordinates, and how the two similarities are weighed.
        folder: keeps the coordinates of stored rows, and of more than `options.landmarks` pairs, so that the next
            call with the same pairs and options reads them from there. None keeps nothing.

    Returns:
        "coordinates", float32 [pairs, `coordinate_units(options)`]: an array for arrays, stored rows for stored rows.

    Raises:
        ImportError: if there are more than `options.landmarks` pairs and faiss is not installed.
    """
    is_stored = isinstance(image, StoredRows) or isinstance(text, StoredRows)
    if not is_stored and len(image) <= options.landmarks:
        return {"coordinates": Coordinates(image, text, options).landmark_coordinates}
    if folder is None:
        # Files that are open can be read after they have been deleted.
        with TemporaryDirectory() as temporary:
            return find_neighbourhood(image, text, options, Path(temporary))
    found = _kept_coordinates(folder / "coordinates")
    if found is None:
        for unfinished in folder.glob(f"{TEMPORARY_PREFIX}*"):
            remove_folder(unfinished)
        blocks = ({"coordinates": block} for block in Coordinates(image, text, options).blocks())
        found = store_rows(folder / "coordinates", blocks)["coordinates"]
    return {"coordinates": found if is_stored else np.asarray(found)}


def held_out_coordinates(
    image: Rows, text: Rows, train_image: Rows, train_text: Rows, options: NeighbourhoodConfig
) -> dict[str, np.ndarray]:
    """The coordinates of pairs that are not trained on: the mean of their nearest training pairs'.

    Args:
        image: [pairs, image_units] features of the held-out pairs.
        text: [pairs, text_units] features of the held-out pairs.
        train_image: [training pairs, image_units] features of the pairs that make the graph.
        train_text: [training pairs, text_units] features of the pairs that make the graph.
        options: as for `find_neighbourhood`.

    Returns:
        "coordinates", float32 [pairs, `coordinate_units(options)`].
    """
    graph = Coordinates(train_image, train_text, options)
    starts = range(0, len(image), BLOCK_ROWS)
    vectors = (graph.joint.of(*(values[start : start + BLOCK_ROWS] for values in (image, text))) for start in starts)
    return {"coordinates": np.concatenate([graph.of(block) for block in vectors])}


def _kept_coordinates(folder: Path) -> StoredRows | None:
    """The coordinates that an earlier call stored; damaged ones are removed, so that they are made again."""
    if not folder.exists():
        return None
    try:
        return open_rows(folder)["coordinates"]
    except DamagedFile:
        remove_folder(folder)
        return None


def coordinate_units(options: NeighbourhoodConfig) -> int:
    """The width of the coordinates: those in the graph, and as many principal axes of the pair's own features."""
    return 2 * options.coordinates


class Coordinates:
    """The coordinates of pairs: their place in the graph, and the principal axes of their own features.

    Where the graph falls into many parts, it cannot tell all of them apart; the features can.

    Args:
        image, text, options: as for `find_neighbourhood`; at least 2 pairs.

    Attributes:
        landmarks: the numbers of the pairs that make the graph.
        landmark_coordinates: float32 [landmarks, `coordinate_units(options)`].
        axes: float32 [units of the joint vectors, axes], the principal axes.
        index: of the landmarks, by their vectors along the axes; None if all pairs are landmarks, which are few enough
            to compare with all of them.
    """

    def __init__(self, image: Rows, text: Rows, options: NeighbourhoodConfig):
        self.joint = JointVectors(image, text, options.text_similarity_weight)
        self.landmarks = np.unique(np.linspace(0, len(image) - 1, options.landmarks).astype(np.int64))
        parts = np.split(self.landmarks, range(BLOCK_ROWS, len(self.landmarks), BLOCK_ROWS))
        vectors = np.concatenate([self.joint[part] for part in parts])
        usual = min(max(_FEWEST_NEIGHBOURS, len(vectors) // 100), _MOST_NEIGHBOURS)
        self.count = min(usual if options.neighbours is None else options.neighbours, len(vectors) - 1)
        places, self._eigenvalues = graph_coordinates(nearest_rows(vectors, self.count), options.coordinates)
        sample = vectors[_even_rows(vectors, _AXES_ROWS)]
        self.axes = _principal_axes(sample, max(options.coordinates, _SEARCHED_UNITS))
        own = vectors @ self.axes[:, : options.coordinates]
        self._own_scale = _scale_to(own, _NORM * np.sqrt(options.own_share))
        self._places = places * _scale_to(places, _NORM * np.sqrt(1.0 - options.own_share))
        self.landmark_coordinates = self._joined(self._places, own)
        self._vectors = vectors
        self.index = _index(vectors @ self.axes) if len(vectors) < len(image) else None

    def blocks(self) -> Iterator[np.ndarray]:
        """The coordinates of all pairs, float32 [block, units] at a time."""
        if self.index is None:
            for start in range(0, len(self.joint), BLOCK_ROWS):
                yield self.landmark_coordinates[start : start + BLOCK_ROWS]
            return
        with ProgressBar(len(self.joint), "neighbourhoods", "pairs") as bar:
            for start in range(0, len(self.joint), BLOCK_ROWS):
                vectors = self.joint[start : start + BLOCK_ROWS]
                yield self.of(vectors)
                bar.update(len(vectors))

    def of(self, vectors: np.ndarray) -> np.ndarray:
        """The coordinates of pairs that are no landmarks, by their joint vectors: float32 [rows, units]."""
        # A coordinate times its eigenvalue is the mean of the neighbours' (see `graph_coordinates`).
        places = self._places[self.nearest_landmarks(vectors)].mean(axis=1) / self._eigenvalues
        return self._joined(places, vectors @ self.axes[:, : self._places.shape[1]])

    def nearest_landmarks(self, vectors: np.ndarray) -> np.ndarray:
        """The nearest landmarks of joint vectors, as positions in `landmarks`: int [rows, count], in no order.

        The index finds candidates by the principal axes; they are compared by all of them.
        """
        if self.index is None:
            return np.argpartition(-(vectors @ self._vectors.T), self.count - 1, axis=1)[:, : self.count]
        num_candidates = min(_CANDIDATES_PER_NEIGHBOUR * self.count, len(self.landmarks))
        candidates = self.index.search(vectors @ self.axes, num_candidates)[1]
        nearest = np.empty((len(vectors), self.count), np.int64)
        for row, numbers in enumerate(candidates):
            similarity = self._vectors[numbers] @ vectors[row]
            nearest[row] = numbers[np.argpartition(-similarity, self.count - 1)[: self.count]]
        return nearest

    def _joined(self, places: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Coordinates in the graph and along the principal axes, of which narrow features have fewer, side by side."""
        joined = np.zeros((len(places), 2 * places.shape[1]), np.float32)
        joined[:, : places.shape[1]] = places
        joined[:, places.shape[1] : places.shape[1] + own.shape[1]] = self._own_scale * own
        return joined


class JointVectors:
    """Vectors of pairs whose inner product is (1 - w) z(cos of images) + w z(cos of texts), up to a constant.

    The cosines are of centred features, and z brings each modality's to zero mean and unit deviation, as one modality
    may spread its cosines far less than the other.

    Args:
        image: [pairs, image_units] features.
        text: [pairs, text_units] features.
        text_weight: w, between 0 and 1.
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
        return self.of(*(values[rows] for values, _, _ in self._parts))

    def of(self, image: np.ndarray, text: np.ndarray) -> np.ndarray:
        """float32 [rows, image_units + text_units] of any pairs, with the centres and deviations of these."""
        parts = zip((image, text), self._parts, strict=True)
        return np.concatenate([scale * _unit_rows(values, centre) for values, (_, centre, scale) in parts], 1)


def nearest_rows(vectors: np.ndarray, count: int) -> np.ndarray:
    """The rows with the largest inner products, among all other rows: int32 [rows, count], in no order."""
    nearest = np.empty((len(vectors), count), np.int32)
    for start in range(0, len(vectors), BLOCK_ROWS):
        similarity = vectors[start : start + BLOCK_ROWS] @ vectors.T
        own = np.arange(len(similarity))
        similarity[own, start + own] = -np.inf
        nearest[start : start + len(own)] = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
    return nearest


def graph_coordinates(nearest: np.ndarray, units: int) -> tuple[np.ndarray, np.ndarray]:
    """The smoothest functions of the graph that links every row with itself and its nearest rows.

    With W the symmetric weights of the links and D their sums, these are the eigenvectors of D^-1 W with the largest
    eigenvalues, after the first, which is constant: (D^-1 W) y = eigenvalue * y. So a row's coordinate times the
    eigenvalue is the mean of its neighbours' coordinates. Each has unit variance before it is multiplied by its
    eigenvalue to the power of 2.

    Args:
        nearest: int [rows, neighbours], without the row itself.
        units: how many functions.

    Returns:
        The coordinates, float64 [rows, units], and their eigenvalues [units]. Where there are too few functions, or
        their eigenvalue is not positive, the coordinate is 0 and the eigenvalue 1.
    """
    from scipy import sparse
    from scipy.sparse.linalg import LinearOperator, eigsh

    num_rows, count = nearest.shape
    links = (np.ones(nearest.size), (np.repeat(np.arange(num_rows), count), nearest.ravel()))
    weights = sparse.csr_matrix(links, shape=(num_rows, num_rows)) + sparse.identity(num_rows, format="csr")
    weights = (weights + weights.T) / 2
    roots = np.sqrt(np.asarray(weights.sum(axis=1)).ravel())
    # D^-1/2 W D^-1/2 is symmetric and has the eigenvectors D^1/2 y. The first, of constant y, is subtracted.
    scaling = sparse.diags(1.0 / roots)
    symmetric = scaling @ weights @ scaling
    constant = roots / np.linalg.norm(roots)
    if num_rows > _DENSE_ROWS:
        without_constant = LinearOperator(
            symmetric.shape, matvec=lambda x: symmetric @ x - constant * (constant @ x), dtype=np.float64
        )
        start = np.random.default_rng(0).standard_normal(num_rows)
        eigenvalues, vectors = eigsh(without_constant, units, which="LA", v0=start)
    else:
        eigenvalues, vectors = np.linalg.eigh(symmetric.toarray() - np.outer(constant, constant))
    order = np.argsort(-eigenvalues)[:units]
    order = order[eigenvalues[order] > 1e-6]
    functions = vectors[:, order] / roots[:, None]
    # An eigenvector's sign is arbitrary: the largest entry is made positive.
    functions *= np.sign(functions[np.abs(functions).argmax(axis=0), np.arange(len(order))])
    coordinates, padded = np.zeros((num_rows, units)), np.ones(units)
    padded[: len(order)] = eigenvalues[order]
    coordinates[:, : len(order)] = functions / functions.std(axis=0) * padded[: len(order)] ** _SMOOTHING
    return coordinates, padded


def _index(vectors: np.ndarray) -> Any:
    """An index for the largest inner products."""
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Neighbourhoods of more than {len(vectors):,} pairs need faiss. Install with: pip install faiss-cpu"
        ) from error
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors, np.float32))
    return index


def _even_rows(rows: Rows | JointVectors, most: int) -> np.ndarray:
    """Evenly spaced row numbers, about `most`."""
    return np.arange(0, len(rows), max(1, len(rows) // most))


def _principal_axes(vectors: np.ndarray, most: int) -> np.ndarray:
    """The orthogonal directions in which `vectors` are longest, about those of all rows: float32 [units, axes]."""
    axes = np.linalg.eigh(vectors.T.astype(np.float64) @ vectors)[1]
    return np.ascontiguousarray(axes[:, ::-1][:, :most], np.float32)


def _scale_to(values: np.ndarray, norm: float) -> np.float32:
    """The factor that gives `values` a root-mean-square norm of `norm`."""
    squares = np.mean(np.sum(np.square(values), axis=1, dtype=np.float64))
    return np.float32(norm / np.sqrt(max(squares, np.finfo(np.float32).tiny)))


def _unit_rows(features: np.ndarray, centre: np.ndarray) -> np.ndarray:
    centred = np.asarray(features, np.float32) - centre
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred / np.maximum(norms, np.finfo(np.float32).tiny)
