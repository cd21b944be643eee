import numpy as np
import pytest

from cmimh_tf.config import NeighbourhoodConfig
from cmimh_tf.stored_rows import StoredRows, store_rows
from cmimh_tf.training import neighbourhood
from cmimh_tf.training.neighbourhood import (
    Coordinates,
    JointVectors,
    coordinate_units,
    find_neighbourhood,
    graph_coordinates,
    held_out_coordinates,
    nearest_rows,
)


@pytest.fixture
def clusters():
    """Three clusters of 20 pairs, far apart in both modalities."""
    generator = np.random.default_rng(0)
    label = np.repeat(np.arange(3), 20)
    image = np.eye(3)[label] @ generator.normal(size=(3, 8)) * 10 + generator.normal(size=(60, 8))
    text = np.eye(3)[label] @ generator.normal(size=(3, 5)) * 10 + generator.normal(size=(60, 5))
    return image.astype(np.float32), text.astype(np.float32), label


def nearest_pairs(image, text, count, text_weight):
    return np.sort(nearest_rows(JointVectors(image, text, text_weight)[:], count), axis=1)


def test_neighbours_are_of_the_same_cluster_and_never_oneself(clusters):
    image, text, label = clusters
    rows = nearest_pairs(image, text, 10, 0.5)
    assert (label[rows] == label[:, None]).all()
    assert (rows != np.arange(60)[:, None]).all()
    assert all(len(set(row)) == 10 for row in rows.tolist())


def test_equal_to_the_naive_definition(clusters, monkeypatch):
    image, text, _ = clusters

    def z_cosine(features):
        centred = features - features.mean(axis=0)
        unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
        cosine = unit @ unit.T
        return cosine / cosine.std()

    similarity = 0.3 * z_cosine(image) + 0.7 * z_cosine(text)
    np.fill_diagonal(similarity, -np.inf)
    expected = np.sort(np.argsort(-similarity, axis=1)[:, :5], axis=1)
    monkeypatch.setattr(neighbourhood, "BLOCK_ROWS", 7)
    np.testing.assert_array_equal(nearest_pairs(image, text, 5, 0.7), expected)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_scale_of_the_features_does_not_matter(clusters, factor):
    image, text, _ = clusters
    np.testing.assert_array_equal(nearest_pairs(image * factor, text, 5, 0.5), nearest_pairs(image, text, 5, 0.5))


def ring(rows):
    """Each row is linked with the one before and the one after it."""
    return np.stack([np.arange(rows) - 1, np.arange(rows) + 1], axis=1) % rows


@pytest.mark.parametrize("dense_rows", [1500, 10])
def test_coordinates_of_a_ring_by_hand(dense_rows, monkeypatch):
    monkeypatch.setattr(neighbourhood, "_DENSE_ROWS", dense_rows)
    rows = 100
    # On a ring with loops, cos and sin of 2 pi k i / n, k = 1, 2, ..., have the eigenvalue (1 + 2 cos(2 pi k / n)) / 3.
    coordinates, eigenvalues = graph_coordinates(ring(rows), 4)
    angle = 2 * np.pi / rows
    np.testing.assert_allclose(eigenvalues, (1 + 2 * np.cos(angle * np.array([1, 1, 2, 2]))) / 3, rtol=1e-6)
    # Unit variance times the eigenvalue squared; both functions of one frequency together are a circle.
    for pair, frequency in ((coordinates[:, :2], 1), (coordinates[:, 2:], 2)):
        radius = np.sqrt(2) * eigenvalues[2 * frequency - 1] ** 2
        np.testing.assert_allclose(np.hypot(*pair.T), radius, rtol=1e-3)
        step = np.linalg.norm(pair[1] - pair[0])
        assert step == pytest.approx(2 * radius * np.sin(frequency * angle / 2), rel=1e-3)


def test_a_coordinate_times_its_eigenvalue_is_the_mean_of_the_neighbours():
    nearest = ring(300)
    coordinates, eigenvalues = graph_coordinates(nearest, 6)
    means = (coordinates + coordinates[nearest].sum(axis=1)) / 3
    np.testing.assert_allclose(means, eigenvalues * coordinates, atol=1e-3)


def test_coordinates_that_do_not_exist_are_zero():
    coordinates, eigenvalues = graph_coordinates(ring(4), 10)
    assert coordinates.shape == (4, 10)
    assert np.isfinite(coordinates).all()
    # Of the ring's four eigenvalues, 1, 1/3, 1/3 and -1/3, only the middle two are positive and not constant.
    np.testing.assert_allclose(eigenvalues[:2], 1 / 3, rtol=1e-6)
    assert not coordinates[:, 2:].any()
    assert (eigenvalues[2:] == 1).all()


def test_clusters_are_told_apart_and_the_own_share_is_that_of_the_features(clusters):
    image, text, label = clusters
    options = NeighbourhoodConfig(neighbours=10, coordinates=2, own_share=0.25)
    found = find_neighbourhood(image, text, options)["coordinates"]
    assert found.shape == (60, coordinate_units(options)) == (60, 4)
    assert found.dtype == np.float32
    places, own = found[:, :2], found[:, 2:]
    assert np.mean(np.sum(places**2, axis=1)) == pytest.approx(75.0, rel=1e-4)
    assert np.mean(np.sum(own**2, axis=1)) == pytest.approx(25.0, rel=1e-4)
    centres = np.stack([places[label == one].mean(axis=0) for one in range(3)])
    np.testing.assert_allclose(places, centres[label], atol=0.1)
    assert min(np.linalg.norm(centres[a] - centres[b]) for a, b in ((0, 1), (0, 2), (1, 2))) > 5


@pytest.mark.parametrize("pairs", [2, 3, 9])
def test_few_pairs_and_narrow_features(pairs):
    features = np.random.default_rng(0).normal(size=(pairs, 3)).astype(np.float32)
    found = find_neighbourhood(features, features[:, :1], NeighbourhoodConfig())["coordinates"]
    assert found.shape == (pairs, 128)
    assert np.isfinite(found).all()


def test_one_pair_in_a_hundred_is_a_neighbour_but_at_least_five_and_at_most_thirty(many):
    more = [np.tile(values, (2, 1)) for values in many]
    parts = [[values[:rows] for values in more] for rows in (4, 300, 1000, 4000)]
    assert [Coordinates(*part, NeighbourhoodConfig()).count for part in parts] == [3, 5, 10, 30]


def test_a_given_number_of_neighbours_is_only_limited_by_the_pairs(many):
    parts = [[values[:rows] for values in many] for rows in (4, 300)]
    assert [Coordinates(*part, NeighbourhoodConfig(neighbours=60)).count for part in parts] == [3, 60]


@pytest.fixture(scope="module")
def many():
    """3,000 pairs that vary in 30 directions, and noise."""
    generator = np.random.default_rng(0)
    factors = generator.normal(size=(3000, 30))
    noise = [0.3 * generator.normal(size=(3000, units)) for units in (300, 60)]
    image = np.tanh(factors @ generator.normal(size=(30, 300)) / 5) + noise[0]
    text = np.tanh(factors @ generator.normal(size=(30, 60)) / 5) + noise[1]
    return image.astype(np.float32), text.astype(np.float32)


def test_the_same_pairs_have_the_same_coordinates(many):
    first, again = (find_neighbourhood(*many, NeighbourhoodConfig())["coordinates"] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_pairs_beside_the_landmarks_lie_where_the_whole_graph_has_them(many):
    options = NeighbourhoodConfig(neighbours=20, coordinates=8, landmarks=1500)
    found = find_neighbourhood(*many, options)["coordinates"]
    coordinates = Coordinates(*many, options)
    assert len(coordinates.landmarks) == 1500
    others = np.setdiff1d(np.arange(3000), coordinates.landmarks)

    def cosine(one, other):
        one, other = one[:, :8], other[:, :8]
        return np.sum(one * other) / np.sqrt(np.sum(one**2) * np.sum(other**2))

    assert cosine(found[coordinates.landmarks], coordinates.landmark_coordinates) > 0.9
    joint = JointVectors(*many, options.text_similarity_weight)[:]
    similarity = joint[others] @ joint[coordinates.landmarks].T
    exact = np.argpartition(-similarity, coordinates.count, axis=1)[:, : coordinates.count]
    nearest = similarity.argmax(axis=1)
    pairs = zip(exact, coordinates.nearest_landmarks(joint[others]), strict=True)
    assert np.mean([np.isin(one, other).mean() for one, other in pairs]) > 0.95
    assert cosine(found[others], coordinates.landmark_coordinates[nearest]) > 0.6
    assert abs(cosine(found[others], coordinates.landmark_coordinates[nearest[::-1]])) < 0.1
    # The pairs' own part does not depend on the landmarks, but for the axes.
    spread = np.mean(np.sum(found[others][:, 8:] ** 2, axis=1)) / np.mean(np.sum(found[:, 8:] ** 2, axis=1))
    assert spread == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("landmarks", [50_000, 100])
def test_coordinates_of_stored_rows_equal_those_of_arrays(many, landmarks, tmp_path, monkeypatch):
    options = NeighbourhoodConfig(landmarks=landmarks)
    image, text = many
    stored = store_rows(tmp_path / "vectors", [{"image": image, "text": text}])
    expected = find_neighbourhood(image, text, options)["coordinates"]
    assert isinstance(expected, np.ndarray)
    found = find_neighbourhood(stored["image"], stored["text"], options, tmp_path / "kept")
    assert isinstance(found["coordinates"], StoredRows)
    np.testing.assert_array_equal(np.asarray(found["coordinates"]), expected)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["coordinates"]
    without_folder = find_neighbourhood(stored["image"], stored["text"], options)["coordinates"]
    np.testing.assert_array_equal(np.asarray(without_folder), expected)
    # The next call reads what was kept.
    monkeypatch.setattr(neighbourhood, "Coordinates", None)
    again = find_neighbourhood(stored["image"], stored["text"], options, tmp_path / "kept")
    np.testing.assert_array_equal(again["coordinates"][:9], expected[:9])


def test_held_out_pairs_lie_among_their_nearest_training_pairs(clusters):
    image, text, label = clusters
    options = NeighbourhoodConfig(neighbours=8, coordinates=4)
    held_out = np.arange(0, 60, 5)
    train = np.setdiff1d(np.arange(60), held_out)
    of_train = find_neighbourhood(image[train], text[train], options)["coordinates"]
    found = held_out_coordinates(image[held_out], text[held_out], image[train], text[train], options)["coordinates"]
    assert (found.shape, found.dtype) == ((12, coordinate_units(options)), np.float32)
    centres = np.stack([of_train[label[train] == cluster].mean(axis=0) for cluster in range(3)])
    distances = np.linalg.norm(found[:, None] - centres, axis=2)
    np.testing.assert_array_equal(distances.argmin(axis=1), label[held_out])


def test_landmarks_are_found_with_and_without_an_index(clusters):
    image, text, _ = clusters
    graph = Coordinates(image, text, NeighbourhoodConfig(neighbours=5, coordinates=4))
    vectors = graph.joint[:10]
    compared = np.sort(graph.nearest_landmarks(vectors), axis=1)
    graph.index = neighbourhood._index(graph.joint[:] @ graph.axes)
    np.testing.assert_array_equal(np.sort(graph.nearest_landmarks(vectors), axis=1), compared)
