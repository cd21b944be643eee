"""Features of networks: added to pairs without vectors, computed once, and kept until all are there."""

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.data.sources import open_records
from pipeline import network_features
from pipeline.components.example_gen import write_examples
from pipeline.examples import read_raw
from pipeline.network_features import NetworkFeatures, feature_versions


def picture(value):
    return tf.io.encode_png(np.full((5, 6, 3), value, np.uint8)).numpy()


def rows(count):
    return [{"image_bytes": picture(10 * row), "caption": "words"} for row in range(count)]


def test_vectors_are_added_and_others_left_to_transform(network):
    added = list(NetworkFeatures(network, "bag_of_words").add(rows(3), 0))
    assert sorted(added[0]) == ["caption", "image_bytes", "image_features"]
    np.testing.assert_allclose(added[2]["image_features"], 20 / 255 * np.array([1, 2, 4]), rtol=1e-5)


def test_pairs_with_vectors_stay_as_they_are(network):
    pairs = [{"image": np.ones(2), "text": np.ones(3), "caption": "only to be shown"}]
    assert list(NetworkFeatures(network, "minilm").add(pairs, 0)) == pairs


def test_kept_vectors_are_not_computed_again(network, tmp_path, monkeypatch):
    features = NetworkFeatures.in_cache(network, "bag_of_words", str(tmp_path), "data")
    first = list(features.add(rows(70), 0))
    monkeypatch.setattr(network_features, "compute_vectors", None)
    again = list(features.add(rows(70), 0))
    np.testing.assert_array_equal([row["image_features"] for row in again], [row["image_features"] for row in first])
    features.clear()
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_kept_rows_but_not_towards_the_speed(network, tmp_path, monkeypatch):
    bars = []

    class Bar(network_features.ProgressBar):
        def close(self):
            bars.append((self.n, self.initial, self.total))
            super().close()

    monkeypatch.setattr(network_features, "ProgressBar", Bar)
    features = NetworkFeatures(network, "bag_of_words", str(tmp_path / "kept"), num_rows=130)
    list(features.add(rows(130), 0))
    (tmp_path / "kept" / "0000000128.npz").unlink()
    list(features.add(rows(130), 0))
    # tqdm closes a bar once more when it is deleted.
    assert list(dict.fromkeys(bars)) == [(130, 0, 130), (130, 128, 130)]


def test_other_data_have_a_folder_of_their_own(network, tmp_path):
    folders = {
        NetworkFeatures.in_cache(name, "bag_of_words", str(tmp_path), data).folder
        for name in (network, "descriptor")
        for data in ("a", "b")
    }
    assert len(folders) == 4
    assert NetworkFeatures.in_cache(network, "bag_of_words", "", "a").folder == ""


def test_missing_package_is_no_error_before_it_is_needed(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(network_features, "text_features_version", missing)
    assert feature_versions("descriptor", "minilm") == ("descriptor@1", "minilm@missing")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for row in range(12):
        (folder / f"{row}.png").write_bytes(picture(10 * row))
    lines = ["image,text", *(f"{row}.png,{'a dog' if row % 2 else 'a cat'}" for row in range(12))]
    (folder / "pairs.csv").write_text("\n".join(lines))
    return folder


def test_examples_have_them(table, network, tmp_path):
    write_examples(
        beam.Pipeline(),
        open_records(str(table / "pairs.csv")),
        str(tmp_path),
        0,
        features=NetworkFeatures(network, "bag_of_words"),
    )
    written = {row["id"]: row for row in read_raw(str(tmp_path), "database")}
    np.testing.assert_allclose(written["3.png"]["image_features"], 30 / 255 * np.array([1, 2, 4]), rtol=1e-5)
    assert "image_bytes" in written["3.png"]
    assert "caption_features" not in written["3.png"]
