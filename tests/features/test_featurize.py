"""Pairs of files to an .npz: the vectors, what is kept of a run that was killed, and refusals."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.data import load_npz
from cmimh_tf.data.records import open_records
from cmimh_tf.features import describe_pictures
from cmimh_tf.features.batches import VectorComputer
from cmimh_tf.features.featurize import featurize as run
from cmimh_tf.features.progress import PairProgress
from cmimh_tf.features.registry import make_image_features

NUM_PAIRS = 300


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """300 pictures of one colour, named by tags; 256 of them are the first block."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "tags.txt").write_text("even\nodd\nlast\n")
    lines = ["image,text,labels"]
    for row in range(NUM_PAIRS):
        picture = np.full((4, 4 + row % 3, 3), row % 256, np.uint8)
        (folder / f"{row}.png").write_bytes(tf.io.encode_png(picture).numpy())
        tags = ["even", "odd"][row % 2] + (" last" if row == NUM_PAIRS - 1 else "")
        lines.append(f"{row}.png,{tags},{'x|y' if row % 5 else 'x'}")
    (folder / "pairs.csv").write_text("\n".join(lines))
    return folder


def write(table, out):
    features = {"image_features": "descriptor", "text_features": f"tags:{table / 'tags.txt'}"}
    return run(open_records(str(table / "pairs.csv")), out, **features)


def test_vectors_labels_and_captions_in_the_order_of_the_table(table, tmp_path):
    assert write(table, tmp_path / "a.npz") == NUM_PAIRS
    data = load_npz(tmp_path / "a.npz")
    assert data.ids.tolist() == [f"{row}.png" for row in range(NUM_PAIRS)]
    assert data.captions[-2:].tolist() == ["even", "odd last"]
    assert data.text[-2:].tolist() == [[1, 0, 0], [0, 1, 1]]
    assert data.classes.tolist() == ["x", "y"]
    assert data.labels[[0, 1]].tolist() == [[1, 0], [1, 1]]
    for row in (0, 7, 299):
        expected = describe_pictures(np.full((1, 4, 4 + row % 3, 3), row % 256, np.uint8))
        np.testing.assert_allclose(data.image[row : row + 1], expected, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_killed_run_goes_on_with_the_parts_it_has(table, tmp_path, monkeypatch):
    computed = []
    images = VectorComputer.images

    def stop_at_the_second_block(self, pictures, *arguments):
        computed.append(len(pictures))
        if len(computed) == 2:
            raise KeyboardInterrupt
        return images(self, pictures, *arguments)

    monkeypatch.setattr(VectorComputer, "images", stop_at_the_second_block)
    with pytest.raises(KeyboardInterrupt):
        write(table, tmp_path / "a.npz")
    assert not (tmp_path / "a.npz").exists()
    write(table, tmp_path / "a.npz")
    assert computed == [256, 44, 44]
    monkeypatch.undo()
    write(table, tmp_path / "b.npz")
    np.testing.assert_array_equal(load_npz(tmp_path / "a.npz").image, load_npz(tmp_path / "b.npz").image)


def test_parts_of_other_features_are_not_used(table, tmp_path):
    parts = tmp_path / "a.npz.parts"
    parts.mkdir()
    (parts / "identity.json").write_text('{"data": "other"}')
    (parts / "0000000000.npz").write_bytes(b"of other data")
    assert write(table, tmp_path / "a.npz") == NUM_PAIRS


def test_fitted_features_are_refused(table, tmp_path):
    with pytest.raises(ValueError, match="`text_features` must not be fitted here"):
        run(
            open_records(str(table / "pairs.csv")),
            tmp_path / "a.npz",
            image_features="descriptor",
            text_features="bag_of_words",
        )


def test_batches_keep_their_order_and_need_no_full_one():
    computer = VectorComputer(make_image_features("descriptor"))
    pictures = [np.full((1, 8, 8, 3), 10 * row, np.uint8) for row in range(5)]
    encoded = [tf.io.encode_png(picture[0]).numpy() for picture in pictures]
    batches = list(computer.images(encoded, batch_size=2))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    np.testing.assert_allclose(np.concatenate(batches), describe_pictures(np.concatenate(pictures)), atol=1e-5)


def test_bytes_that_are_no_picture_are_refused():
    computer = VectorComputer(make_image_features("descriptor"))
    with pytest.raises(ValueError, match="`pictures` must be JPEG, PNG, GIF or BMP"):
        list(computer.images([b"no picture"]))


def test_progress_tells_the_time_left(table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(PairProgress, "add", lambda self, count: print(count, self.total))
    write(table, tmp_path / "a.npz")
    assert capsys.readouterr().out == "256 300\n44 300\n"
