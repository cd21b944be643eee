"""Networks from folders with SavedModels, made here as TF-Hub's are."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.features import make_image_features, make_text_features


class ColourMeans(tf.Module):
    """A feature vector: the mean colour, times a weight."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable([1.0, 2.0, 4.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.float32, name="inputs")])
    def __call__(self, pictures):
        return {"default": tf.reduce_mean(pictures, axis=[1, 2]) * self.weight}


class Lengths(tf.Module):
    """A preprocessing: a text's length in place of its pieces."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts):
        return {"input_word_ids": tf.strings.length(texts)[:, None]}


class Encoder(tf.Module):
    """An encoder with the output that TF-Hub's have for a whole text."""

    @tf.function(input_signature=[{"input_word_ids": tf.TensorSpec([None, 1], tf.int32)}])
    def __call__(self, inputs):
        lengths = tf.cast(inputs["input_word_ids"], tf.float32)
        return {"pooled_output": tf.concat([lengths, -lengths], axis=1), "sequence_output": lengths[:, None]}


@pytest.fixture
def folder(tmp_path):
    pictures = ColourMeans()
    tf.saved_model.save(pictures, str(tmp_path / "pictures"), signatures={"serving_default": pictures.__call__})
    tf.saved_model.save(Lengths(), str(tmp_path / "preprocessing"))
    tf.saved_model.save(Encoder(), str(tmp_path / "encoder"))
    return tmp_path


def test_pictures_are_stretched_to_the_size_of_the_network(folder):
    features = make_image_features(f"hub:{folder / 'pictures'}")
    assert (features.picture_size, features.dim) == (8, 3)
    picture = np.broadcast_to(np.array([255, 51, 0], np.uint8), (30, 20, 3))
    np.testing.assert_allclose(features([tf.io.encode_png(picture).numpy()]), [[1, 0.4, 0]], atol=1e-5)


def test_texts_go_through_preprocessing_and_encoder(folder):
    for name in (f"bert:{folder / 'encoder'},{folder / 'preprocessing'}", f"bert:{folder / 'encoder'}"):
        features = make_text_features(name)
        assert features.dim == 2
        np.testing.assert_array_equal(features(["abc", ""]), [[3, -3], [0, 0]])


def test_encoder_without_its_preprocessing_is_refused(folder, tmp_path):
    alone = tmp_path / "alone" / "encoder"
    tf.saved_model.save(Encoder(), str(alone))
    with pytest.raises(ValueError, match="must name the preprocessing after a comma, bert:ENCODER,PREPROCESSING"):
        make_text_features(f"bert:{alone}")


def test_models_of_other_inputs_are_refused(folder):
    with pytest.raises(ValueError, match=r"`handle` must have square inputs, .* Received: \(None, 1\)"):
        make_image_features(f"hub:{folder / 'encoder'}")
    tf.saved_model.save(tf.Module(), str(folder / "nothing"))
    with pytest.raises(ValueError, match=r"`handle` must have one of the signatures serving_default, .* with none"):
        make_image_features(f"hub:{folder / 'nothing'}")


def test_weights_are_saved_with_a_graph(folder, tmp_path):
    features = make_image_features(f"hub:{folder / 'pictures'}")
    module = tf.Module()
    module.features = features
    module.vectors = tf.function(features, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    tf.saved_model.save(module, str(tmp_path / "saved"))
    picture = [tf.io.encode_png(np.full((9, 9, 3), 51, np.uint8)).numpy()]
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.vectors(tf.constant(picture)), [[0.2, 0.4, 0.8]], atol=1e-5)
