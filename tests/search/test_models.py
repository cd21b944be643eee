"""Models as search sees them: what they are, and the codes and logits that they make."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from cmimh_tf.search.engines.interface import Header
from cmimh_tf.search.models import HashingModel, ModelMismatch, check_model, describe_model
from tests.search.conftest import CAPTIONS, draw_picture, make_model


@pytest.fixture(scope="module")
def run(runs):
    return HashingModel(describe_model(runs[0] / "first"))


@pytest.fixture(scope="module")
def export(exports):
    return HashingModel(describe_model(exports[0]))


def vectors(count, width, seed=3):
    return list(np.random.default_rng(seed).random((count, width), np.float32))


def test_a_run_makes_the_codes_and_logits_of_its_model(runs, run):
    model = runs[1]["first"]
    image, text = vectors(30, 12), vectors(30, 8)
    codes, logits = run.hash_images(image)
    assert np.array_equal(codes, model.hash_images(np.stack(image)))
    assert np.allclose(logits, model.code_logits("image", np.stack(image)), atol=1e-5)
    assert np.array_equal(run.hash_texts(text)[0], model.hash_texts(np.stack(text)))
    assert (run.code_length, run.description.widths) == (16, {"image": 12, "text": 8})


def test_an_export_makes_the_codes_of_pictures_captions_and_vectors(exports, export):
    base, models, words = exports
    model = models[2]
    assert (export.stamp.version, export.stamp.path) == (2, str(base / "2"))
    texts = words(CAPTIONS).numpy()
    codes, logits = export.hash_texts(CAPTIONS)
    assert np.array_equal(codes, model.hash_texts(texts))
    assert np.allclose(logits, model.code_logits("text", texts), atol=1e-4)
    assert np.array_equal(export.hash_texts(list(texts))[0], codes)
    pictures = [draw_picture(seed) for seed in range(3)]
    assert export.hash_images(pictures)[0].shape == (3, 2)
    mixed = export.hash_images([pictures[0], vectors(1, model.image_units)[0], pictures[1]])
    assert np.array_equal(mixed[0][[0, 2]], export.hash_images(pictures[:2])[0])


def test_bits_of_an_export_are_its_own_even_where_the_probability_is_a_half(export, monkeypatch):
    bits = np.array([[False] * 8 + [True] * 8])
    monkeypatch.setitem(export._raw_encoders, "text", lambda inputs: (bits, np.zeros((1, 16), np.float32)))
    assert export.hash_texts(["x"])[0].tolist() == [[0, 255]]


def test_a_model_is_found_by_folder_file_and_base(runs, exports):
    folder, base = runs[0], exports[0]
    described = describe_model(folder / "first")
    assert described.stamp.fingerprint == describe_model(folder / "first" / "model.keras").stamp.fingerprint
    assert described.stamp.path == str(folder / "first")
    assert (described.takes_raw, described.is_export) == ((), False)
    assert describe_model(base).stamp == describe_model(base / "2").stamp
    assert describe_model(base).takes_raw == ("image", "text")
    assert describe_model(base / "1").stamp.fingerprint != describe_model(base / "2").stamp.fingerprint
    assert describe_model(folder / "first").stamp.fingerprint != describe_model(folder / "second").stamp.fingerprint


def test_a_copy_has_the_same_fingerprint(runs, exports, tmp_path):
    shutil.copytree(runs[0] / "first", tmp_path / "run")
    shutil.copytree(exports[0] / "1", tmp_path / "export")
    assert describe_model(tmp_path / "run").stamp.fingerprint == describe_model(runs[0] / "first").stamp.fingerprint
    assert describe_model(tmp_path / "export").stamp.fingerprint == describe_model(exports[0] / "1").stamp.fingerprint


def test_what_is_no_model_is_rejected(tmp_path):
    for path, message in [
        (tmp_path / "nothing", "which does not exist"),
        (tmp_path, "`model` must be a run folder"),
    ]:
        with pytest.raises(FileNotFoundError, match=message):
            describe_model(path)
    (tmp_path / "model.keras").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="cannot be read as a model"):
        describe_model(tmp_path)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="must be a model that cmimh_tf exported"):
        describe_model(tmp_path / "export")


def test_features_are_known_by_width_or_by_flag(tmp_path):
    from cmimh_tf.training.run_folder import RunFolder

    RunFolder(tmp_path / "run").save_model(make_model(1280, 384))
    stamp = describe_model(tmp_path / "run").stamp
    assert (stamp.image_features, stamp.text_features) == ("efficientnet_lite0", "minilm")
    assert describe_model(tmp_path / "run", image_features="descriptor").stamp.image_features == "descriptor"
    with pytest.raises(ValueError, match="`text_features` must be one of"):
        describe_model(tmp_path / "run", text_features="word2vec")
    model = HashingModel(describe_model(tmp_path / "run", image_features="descriptor"))
    with pytest.raises(ValueError, match=r"the model takes, 1280\. Received: descriptor, of width 572"):
        model.hash_images([draw_picture(0)])


def test_an_emoji_run_takes_words(tmp_path):
    from cmimh_tf.files import write_json
    from cmimh_tf.search import adapters
    from cmimh_tf.training.run_folder import RunFolder

    function, width = adapters.make_features("text", "emoji_words:0")
    assert function(["dog face"]).shape == (1, width)
    RunFolder(tmp_path).save_model(make_model(572, width))
    write_json(tmp_path / "config.json", {"data": {"name": "emoji"}, "split": {"seed": 0}})
    model = HashingModel(describe_model(tmp_path))
    assert (model.stamp.image_features, model.stamp.text_features) == ("descriptor", "emoji_words:0")
    assert model.hash_texts(["dog face"])[0].shape == (1, 2)
    assert model.hash_images([draw_picture(0)])[0].shape == (1, 2)


def test_vectors_that_do_not_fit_are_rejected(run):
    with pytest.raises(ValueError, match=r"vectors of width 12, which the model takes\. Received: shape \(9,\)"):
        run.hash_images(vectors(1, 9))
    with pytest.raises(ValueError, match="`image` must be finite"):
        run.hash_images([np.full(12, np.nan, np.float32)])
    with pytest.raises(
        ValueError, match="trained on text vectors of width 8, and it is not known how they were made of"
    ):
        run.hash_texts(["a dog"])
    with pytest.raises(FileNotFoundError, match=r"photo\.jpg, which does not exist"):
        run.hash_images(["photo.jpg"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["run", "export"])
def test_a_vector_with_one_wrong_value_is_named(kind, value, request):
    model = request.getfixturevalue(kind)
    for side, hash_all in (("image", model.hash_images), ("text", model.hash_texts)):
        given = vectors(5002, model.description.widths[side])
        given[5000][3] = value
        with pytest.raises(
            ValueError, match=rf"`{side}` must be finite\. Received: NaN or infinite values in row 5000"
        ):
            hash_all(given)


def test_what_is_no_picture_is_rejected(export, tmp_path):
    (tmp_path / "note.jpg").write_text("no picture")
    with pytest.raises(ValueError, match="must be a JPEG, PNG, GIF or BMP picture"):
        export.hash_images([tmp_path / "note.jpg"])


def test_another_model_is_refused_with_the_cure(runs):
    folder = runs[0]
    header = Header(16, describe_model(folder / "first").stamp)
    assert check_model(header, "index", folder / "first").stamp == header.model
    with pytest.raises(ModelMismatch) as caught:
        check_model(header, "index", folder / "second")
    message = str(caught.value)
    assert f"must be searched with the model that made it, {folder / 'first'}" in message
    assert f"python -m cmimh_tf.index rehash --index index --model {folder / 'second'}" in message
    moved = replace(header, model=replace(header.model, path="/gone"))
    with pytest.raises(FileNotFoundError, match=r"is no longer there\. Name its new place"):
        check_model(moved, "index")
    assert check_model(moved, "index", folder / "first").stamp.fingerprint == header.model.fingerprint
    with pytest.raises(ModelMismatch, match="built from codes, without a model"):
        check_model(Header(16), "index")
    with pytest.raises(ModelMismatch, match=r"a model of 16 bits\. Received: 32"):
        check_model(Header(16), "index", folder / "long")


def test_the_version_that_made_an_index_is_found_in_its_base(exports):
    header = Header(16, describe_model(exports[0] / "1").stamp)
    assert check_model(header, "index", exports[0]).stamp.version == 1
