"""The Transform graph: the formula of FeatureScaler, principal components, pictures and captions."""

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from cmimh_tf.features import BagOfWords, Projection, describe_pictures, make_image_features
from cmimh_tf.layers import FeatureScaler
from pipeline.transform import TransformPreprocessing, preprocessing_fn

CONFIG = {
    "image_features": "descriptor",
    "text_features": "bag_of_words",
    "input_norm": 10.0,
    "pca_units": None,
    "vocabulary_size": 5,
}
IDS = {"id": tf.io.FixedLenFeature([1], tf.string), "position": tf.io.FixedLenFeature([1], tf.int64)}


def fit(rows, spec, folder, **changes):
    """Fits on `rows`, and returns what becomes of them and the fitted graph."""
    spec = {**spec, **IDS}
    rows = [{**row, "id": [b"a"], "position": [index]} for index, row in enumerate(rows)]
    metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(spec))
    with beam.Pipeline() as pipeline, tft_beam.Context(temp_dir=str(folder / "tmp"), use_deep_copy_optimization=True):
        analyze = tft_beam.AnalyzeDataset(lambda inputs: preprocessing_fn(inputs, CONFIG | changes))
        fitted = ((pipeline | beam.Create(rows)), metadata) | analyze
        fitted | tft_beam.WriteTransformFn(str(folder / "graph"))
        metadata | tft_beam.WriteMetadata(str(folder / "graph" / "metadata"), pipeline)
    graph = tft.TFTransformOutput(str(folder / "graph"))
    batch = {name: tf.constant(np.stack([row[name] for row in rows])) for name in spec}
    return {name: values.numpy() for name, values in graph.transform_features_layer()(batch).items()}, graph


@pytest.fixture(scope="module")
def vectors():
    # Images vary in two of their five dimensions, where three components will be asked for.
    rng = np.random.default_rng(0)
    image = rng.normal(3, 1, (30, 2)) @ np.array([[5, 3, 0, 0, 1], [0, -2, 1, 0, 0]])
    return image, rng.normal(-1, 1, (30, 3))


@pytest.fixture(scope="module")
def fitted_vectors(vectors, tmp_path_factory):
    image, text = vectors
    spec = {"image": tf.io.FixedLenFeature([5], tf.float32), "text": tf.io.FixedLenFeature([3], tf.float32)}
    rows = [{"image": a, "text": b} for a, b in zip(image.astype(np.float32), text.astype(np.float32), strict=True)]
    return fit(rows, spec, tmp_path_factory.mktemp("vectors"), pca_units=3)


def test_narrow_vectors_are_scaled_as_the_model_would(vectors, fitted_vectors):
    text = vectors[1].astype(np.float32)
    scaler = FeatureScaler(10.0)
    scaler.build((None, 3))
    scaler.adapt(text)
    np.testing.assert_allclose(fitted_vectors[0]["text"], scaler(text), rtol=1e-5, atol=1e-5)


def test_wide_vectors_are_projected_on_their_principal_components(vectors, fitted_vectors):
    centred = vectors[0] - vectors[0].mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    largest = directions[np.arange(2), np.abs(directions[:2]).argmax(axis=1)]
    projected = centred @ (directions[:2] * np.sign(largest)[:, None]).T
    expected = projected * 10 / np.sqrt((projected**2).sum(axis=1).mean())
    np.testing.assert_allclose(fitted_vectors[0]["image"][:, :2], expected, rtol=1e-3, atol=1e-3)


def test_components_beyond_the_rank_are_zero_on_new_rows(fitted_vectors):
    new = TransformPreprocessing(fitted_vectors[1]).image_vectors(tf.constant([[0, 0, 5, 7, -3]], tf.float32))
    assert np.abs(new[:, 2]).max() == 0


def test_the_order_of_the_rows_does_not_change_a_bit(tmp_path):
    # Nearly equal variances in orthogonal directions: rounding errors of the covariance turn the components by 1e-10.
    directions, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(1000, 12)))
    image = (directions * (1 + 1e-6 * np.arange(12))).astype(np.float32)
    spec = {"image": tf.io.FixedLenFeature([12], tf.float32), "text": tf.io.FixedLenFeature([2], tf.float32)}
    rows = [{"image": values, "text": values[:2]} for values in image]
    forward, _ = fit(rows, spec, tmp_path / "forward", pca_units=8)
    backward, _ = fit(rows[::-1], spec, tmp_path / "backward", pca_units=8)
    for name in ("image", "text"):
        np.testing.assert_array_equal(forward[name], backward[name][::-1])


def test_root_mean_square_norm_is_the_wanted_one(fitted_vectors):
    for name in ("image", "text"):
        values = fitted_vectors[0][name]
        assert np.sqrt((values**2).sum(axis=1).mean()) == pytest.approx(10, rel=1e-5)


def test_served_vectors_equal_the_transformed_ones(vectors, fitted_vectors):
    outputs, graph = fitted_vectors
    preprocessing = TransformPreprocessing(graph)
    assert (preprocessing.image_width, preprocessing.text_width) == (5, 3)
    assert preprocessing.image_bytes_vectors is None
    assert preprocessing.caption_vectors is None
    image, text = (tf.constant(array, tf.float32) for array in vectors)
    np.testing.assert_allclose(preprocessing.image_vectors(image), outputs["image"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(preprocessing.text_vectors(text), outputs["text"], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def raw():
    rng = np.random.default_rng(1)
    pictures = [rng.integers(0, 256, (size, 12, 3)).astype(np.uint8) for size in (10, 64, 30, 8)]
    return pictures, ["A dog", "a cat and a dog", "The Dog!", "a cat"]


@pytest.fixture(scope="module")
def fitted_raw(raw, tmp_path_factory):
    spec = {"image_bytes": tf.io.FixedLenFeature([1], tf.string), "caption": tf.io.FixedLenFeature([1], tf.string)}
    rows = [
        {"image_bytes": [tf.io.encode_png(picture).numpy()], "caption": [caption.encode()]}
        for picture, caption in zip(*raw, strict=True)
    ]
    return fit(rows, spec, tmp_path_factory.mktemp("raw"), input_norm=None)


def test_pictures_of_any_size_are_described(raw, fitted_raw):
    expected = np.concatenate([describe_pictures(picture[None]) for picture in raw[0]])
    np.testing.assert_allclose(fitted_raw[0]["image"], expected, atol=1e-5)


def test_captions_are_bags_of_the_commonest_words(raw, fitted_raw):
    words = BagOfWords.fit(raw[1], unit_length=True, unknown_column=True)
    text = fitted_raw[0]["text"]
    assert text.shape == (4, 6)
    # All five words are known, so that only the order of the columns may differ.
    np.testing.assert_allclose(text @ text.T, words(raw[1]).numpy() @ words(raw[1]).numpy().T, atol=1e-6)


def test_caption_without_a_known_word_has_its_own_column(fitted_raw):
    preprocessing = TransformPreprocessing(fitted_raw[1])
    np.testing.assert_array_equal(preprocessing.caption_vectors(tf.constant(["bird", "..."])), [[0] * 5 + [1]] * 2)


def test_served_pictures_and_captions_equal_the_transformed_ones(raw, fitted_raw):
    outputs, graph = fitted_raw
    preprocessing = TransformPreprocessing(graph)
    encoded = tf.constant([tf.io.encode_png(picture).numpy() for picture in raw[0]])
    np.testing.assert_allclose(preprocessing.image_bytes_vectors(encoded), outputs["image"], atol=1e-6)
    np.testing.assert_allclose(preprocessing.caption_vectors(tf.constant(raw[1])), outputs["text"], atol=1e-6)


def test_empty_picture_is_refused(fitted_raw):
    with pytest.raises(tf.errors.InvalidArgumentError, match="must hold a picture in every row"):
        TransformPreprocessing(fitted_raw[1]).image_bytes_vectors(tf.constant([""]))


RAW_SPEC = {"image_bytes": tf.io.FixedLenFeature([1], tf.string), "caption": tf.io.FixedLenFeature([1], tf.string)}


@pytest.fixture(scope="module")
def grey_pictures():
    return [tf.io.encode_png(np.full((5, 6, 3), 10 * row, np.uint8)).numpy() for row in range(8)]


def test_served_pictures_go_through_the_network_and_the_transform_graph(network, grey_pictures, tmp_path):
    vectors = make_image_features(network)(grey_pictures).numpy()
    spec = {**RAW_SPEC, "image_features": tf.io.FixedLenFeature([3], tf.float32)}
    pairs = [
        {"image_bytes": [picture], "caption": [b"a dog"], "image_features": vector}
        for picture, vector in zip(grey_pictures, vectors, strict=True)
    ]
    outputs, graph = fit(pairs, spec, tmp_path, image_features=network)
    preprocessing = TransformPreprocessing(graph, network, "bag_of_words")
    assert preprocessing.image_width == 3
    assert preprocessing.image_features_version.startswith(f"{network}@")
    assert preprocessing.text_features_version is None
    served = preprocessing.image_bytes_vectors(tf.constant(grey_pictures))
    np.testing.assert_allclose(served, outputs["image"], atol=1e-4)
    np.testing.assert_allclose(preprocessing.image_vectors(tf.constant(vectors)), outputs["image"], atol=1e-4)


def test_network_can_also_be_part_of_the_transform_graph(network, grey_pictures, tmp_path):
    pairs = [{"image_bytes": [picture], "caption": [b"a dog"]} for picture in grey_pictures]
    outputs, graph = fit(pairs, RAW_SPEC, tmp_path, image_features=network, input_norm=None)
    expected = [[10 * row / 255 * weight for weight in (1, 2, 4)] for row in range(8)]
    np.testing.assert_allclose(outputs["image"], expected, rtol=1e-4, atol=1e-6)
    served = TransformPreprocessing(graph).image_bytes_vectors(tf.constant(grey_pictures))
    np.testing.assert_allclose(served, expected, rtol=1e-4, atol=1e-6)


def test_projection_outside_the_pipeline_is_the_same(vectors, fitted_vectors):
    image = vectors[0].astype(np.float32)
    projection = Projection.fit(image, 3, input_norm=10.0)
    np.testing.assert_allclose(projection(image), fitted_vectors[0]["image"], rtol=1e-4, atol=1e-4)
