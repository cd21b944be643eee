import json

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.checksums import CHECKSUM_FILE
from serving.errors import ServingError
from serving.export import WARMUP_FILE, export_model, next_version, read_warmup
from serving.server.servable import Servable

SIGNATURES = {
    "hash_caption", "hash_image", "hash_image_bytes", "hash_image_float_bytes", "hash_text", "hash_text_float_bytes",
    "serving_default",
}  # fmt: skip


@pytest.fixture(scope="module")
def servable(exported):
    loaded = Servable("cmimh", 1, exported.base / "1")
    yield loaded
    loaded.close()


def codes_of(outputs):
    return np.frombuffer(b"".join(outputs["code_bytes"]), np.uint8).reshape(len(outputs["code_bytes"]), -1)


def strings(values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def example(**features):
    message = tf.train.Example()
    for key, value in features.items():
        if isinstance(value, bytes):
            message.features.feature[key].bytes_list.value.append(value)
        else:
            message.features.feature[key].float_list.value.extend(value)
    return message.SerializeToString()


def png(picture):
    return tf.io.encode_png(picture).numpy()


def pictures(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (int(rng.integers(8, 40)), 16, 3), np.uint8) for _ in range(count)]


def test_the_three_outputs_agree_with_each_other(exported, servable):
    rows = exported.image_rows(9)
    outputs = servable.runner("hash_image").run({"image": rows})
    assert set(servable.runners) == SIGNATURES
    assert set(outputs) == {"code_bytes", "bits", "probs"}
    np.testing.assert_array_equal(outputs["bits"], np.unpackbits(codes_of(outputs), axis=1, bitorder="little"))
    probs = exported.model({"image": rows, "text": exported.text_rows(9)})["image_probs"].numpy()
    np.testing.assert_allclose(outputs["probs"], probs, atol=1e-6)
    assert outputs["bits"].dtype == np.int32


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8, 31, 64, 1500])
def test_codes_are_those_of_the_model_at_every_batch_size(exported, servable, batch_size):
    rows, texts = exported.image_rows(1500, seed=1), exported.text_rows(1500, seed=2)
    count = min(1500, 200 * batch_size)
    for name, values, expected in (
        ("image", rows, exported.model.hash_images(rows)),
        ("text", texts, exported.model.hash_texts(texts)),
    ):
        runner = servable.runner(f"hash_{name}")
        codes = [
            codes_of(runner.run({name: values[start : min(start + batch_size, count)]}))
            for start in range(0, count, batch_size)
        ]
        np.testing.assert_array_equal(np.concatenate(codes), expected[:count])


@pytest.fixture(scope="module")
def undecided_rows(exported):
    """Rows with a logit that float32 cannot tell from 0: found by halving the way between rows of different bits."""
    low, high = exported.image_rows(800, seed=3), exported.image_rows(800, seed=4)
    bits = np.random.default_rng(5).integers(0, 16, 800)

    def sign(rows):
        return exported.model.image_logits(tf.constant(rows)).numpy()[np.arange(800), bits] >= 0

    low_sign = sign(low)
    differ = low_sign != sign(high)
    for _ in range(40):
        middle = ((low + high) / 2).astype(np.float32)
        same = (sign(middle) == low_sign)[:, None]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    rows = np.concatenate([low[differ], high[differ]])
    assert len(rows) > 200
    return rows


@pytest.mark.parametrize("batch_size", [1, 2, 8, 64])
def test_codes_of_undecided_rows_do_not_depend_on_the_batch(exported, servable, undecided_rows, batch_size):
    expected = exported.model.hash_images(undecided_rows)
    runner = servable.runner("hash_image")
    count = min(len(undecided_rows), 200 * batch_size)
    codes = [
        codes_of(runner.run({"image": undecided_rows[start : min(start + batch_size, count)]}))
        for start in range(0, count, batch_size)
    ]
    np.testing.assert_array_equal(np.concatenate(codes), expected[:count])


def test_the_undecided_rows_are_a_real_danger(exported, undecided_rows):
    # Whether two batch sizes round differently is up to the processor; that such a difference would show is not.
    logits = exported.model.image_logits(tf.constant(undecided_rows)).numpy()
    assert np.abs(logits).min(axis=1).max() < 1e-6


def test_all_ways_in_give_the_same_codes(exported, servable):
    rows, texts = exported.image_rows(5), exported.text_rows(5)
    images, captions = pictures(5), ["a red cat", "", "nothing known", "the dog \N{DOG FACE}", "tree"]
    picture_bytes, caption_bytes = [png(picture) for picture in images], [caption.encode() for caption in captions]
    expected = {
        "hash_image_float_bytes": ("image_float_bytes", [row.tobytes() for row in rows]),
        "hash_text_float_bytes": ("text_float_bytes", [row.tobytes() for row in texts]),
        "hash_image_bytes": ("image_bytes", picture_bytes),
        "hash_caption": ("caption", caption_bytes),
    }
    codes = {
        "hash_image_float_bytes": exported.model.hash_images(rows),
        "hash_text_float_bytes": exported.model.hash_texts(texts),
        "hash_image_bytes": exported.picture_codes(images),
        "hash_caption": exported.caption_codes(captions),
    }
    for signature, (name, values) in expected.items():
        outputs = servable.runner(signature).run({name: strings(values)})
        np.testing.assert_array_equal(codes_of(outputs), codes[signature], err_msg=signature)
    # A mixed batch of Examples, each hashed by what it holds; the picture comes before the text.
    mixed = [
        example(image=rows[0]), example(text=texts[1]), example(image_bytes=picture_bytes[2]),
        example(caption=caption_bytes[3]), example(image=rows[4], caption=b"ignored"),
    ]  # fmt: skip
    outputs = servable.runner("serving_default").run({"examples": strings(mixed)})
    wanted = [
        codes["hash_image_float_bytes"][0], codes["hash_text_float_bytes"][1], codes["hash_image_bytes"][2],
        codes["hash_caption"][3], codes["hash_image_float_bytes"][4],
    ]  # fmt: skip
    np.testing.assert_array_equal(codes_of(outputs), wanted)


def refused(runner, name, value):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        runner.run({name: value})
    return caught.value.message


@pytest.mark.parametrize("width", [1, 207, 0])
def test_a_wrong_width_names_both_shapes(servable, width):
    message = refused(servable.runner("hash_image"), "image", np.zeros((3, width), np.float32))
    assert f"`image` must have shape [rows, 572]. Received: [3, {width}]." in message


def test_what_is_wrong_is_an_invalid_argument_with_its_row(exported, servable):
    rows = exported.image_rows(4)
    rows[2, 7] = np.inf
    assert "`image` must be finite. Received: NaN or infinite values in row 2." in refused(
        servable.runner("hash_image"), "image", rows
    )
    floats = strings([bytes(4 * 572), b"123"])
    assert "572 little-endian float32, 2288 bytes a row. Received: 3 bytes." in refused(
        servable.runner("hash_image_float_bytes"), "image_float_bytes", floats
    )
    assert "Unknown image file format" in refused(
        servable.runner("hash_image_bytes"), "image_bytes", strings([b"no picture"])
    )
    truncated = strings([tf.io.encode_jpeg(pictures(1)[0]).numpy()[:100]])
    assert refused(servable.runner("hash_image_bytes"), "image_bytes", truncated)
    examples = servable.runner("serving_default")
    assert "Received: none of them in row 1" in refused(
        examples, "examples", strings([example(image=rows[0]), example(other=[1.0])])
    )
    width = exported.bag_of_words.dim
    assert f"`text` of each Example must have shape [{width}]. Received: [2]." in refused(
        examples, "examples", strings([example(text=[1.0, 2.0])])
    )
    with pytest.raises(ServingError, match="Could not parse example input") as caught:
        examples.run({"examples": strings([b"\xff\xff"])})
    assert caught.value.code == "INVALID_ARGUMENT"


def test_an_empty_batch_gives_empty_outputs(exported, servable):
    outputs = servable.runner("hash_text").run({"text": exported.text_rows(0)})
    assert outputs["code_bytes"].shape == (0,)
    assert outputs["bits"].shape == (0, 16)


def test_signatures_declare_the_widths(exported, servable):
    assert servable.runner("hash_image").inputs["image"].shape == (None, 572)
    assert servable.runner("hash_text").inputs["text"].shape == (None, exported.bag_of_words.dim)


def test_extra_assets(exported):
    folder = exported.base / "1" / "assets.extra"
    expected = {WARMUP_FILE, CHECKSUM_FILE, "config.json", "model_card.md", "metrics.json"}
    assert {path.name for path in folder.iterdir()} == expected
    description = json.loads((folder / "config.json").read_text())
    assert description["config"] == json.loads(json.dumps(exported.model.config.to_dict()))
    assert (description["image_width"], description["takes_captions"]) == (572, True)
    requests = list(read_warmup(folder / WARMUP_FILE))
    assert {request.model_spec.signature_name for request in requests} == SIGNATURES
    assert len(requests) == 2 * len(SIGNATURES)


def test_only_the_encoders_are_saved(exported):
    saved = sum(path.stat().st_size for path in (exported.base / "1" / "variables").iterdir())
    encoders = sum(
        int(np.prod(weight.shape)) for name in ("image", "text") for weight in exported.model.encoders[name].weights
    )
    # float32, and some kilobytes for scalers and names.
    assert saved < 4 * encoders + 20_000


def test_vectors_alone_have_no_raw_signatures_and_refuse_to_overwrite(tmp_path):
    from cmimh_tf import CMIMH, get_preset

    model = CMIMH(config=get_preset("smoke"), image_units=6, text_units=4)
    target = next_version(tmp_path / "model")
    assert target.name == "1"
    target.mkdir(parents=True)
    export_model(model, target, warmup_batch_sizes=())
    assert next_version(tmp_path / "model").name == "2"
    loaded = tf.saved_model.load(str(target))
    assert set(loaded.signatures) == SIGNATURES - {"hash_image_bytes", "hash_caption"}
    rows = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    outputs = loaded.signatures["hash_image"](image=tf.constant(rows))
    np.testing.assert_array_equal(codes_of({"code_bytes": outputs["code_bytes"].numpy()}), model.hash_images(rows))
    with pytest.raises(FileExistsError, match="`directory` must be new or empty"):
        export_model(model, target)
    with pytest.raises(ValueError, match=r"plain file names. Received: '../x'"):
        export_model(model, tmp_path / "model" / "3", extra_assets={"../x": ""})
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["1"]
