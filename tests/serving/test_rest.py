"""What the REST interface answers to good requests."""

import numpy as np
import tensorflow as tf

from tests.serving.http_exchange import PREDICT, b64, predict, run


def test_rows_and_columns_give_the_codes_of_the_model(exported, store):
    rows = exported.image_rows(3)
    expected = [b64(code.tobytes()) for code in exported.model.hash_images(rows)]
    listed = rows.tolist()
    answers = run(
        store,
        predict("hash_image", instances=listed),
        predict("hash_image", instances=[{"image": row} for row in listed]),
        predict("hash_image_float_bytes", instances=[b64(row.tobytes()) for row in rows]),
    )
    for answer in answers:
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert [row["code_bytes"] for row in answer.json["predictions"]] == expected
    answers = run(
        store,
        predict("hash_image", inputs=listed),
        predict("hash_image", inputs={"image": listed}),
        predict("hash_image_float_bytes", inputs={"image_float_bytes": [b64(row.tobytes()) for row in rows]}),
    )
    for answer in answers:
        outputs = answer.json["outputs"]
        assert outputs["code_bytes"] == expected
        assert np.shape(outputs["bits"]) == np.shape(outputs["probs"]) == (3, 16)


def test_captions_pictures_and_examples(exported, store):
    picture = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    example = tf.train.Example()
    example.features.feature["caption"].bytes_list.value.append(b"a red cat")
    caption, picture_answer, example_answer = run(
        store,
        predict("hash_caption", instances=["a red cat"]),
        predict("hash_image_bytes", instances=[b64(tf.io.encode_png(picture).numpy())]),
        ("POST", PREDICT, {"instances": [b64(example.SerializeToString())]}),
    )
    expected = [b64(exported.caption_codes(["a red cat"])[0].tobytes())]
    assert [row["code_bytes"] for row in caption.json["predictions"]] == expected
    assert [row["code_bytes"] for row in example_answer.json["predictions"]] == expected
    expected = [b64(exported.picture_codes([picture])[0].tobytes())]
    assert [row["code_bytes"] for row in picture_answer.json["predictions"]] == expected


def test_addresses_with_version_and_label_in_any_case(exported, store):
    body = {"signature_name": "hash_caption", "instances": ["dog"]}
    answers = run(
        store,
        ("POST", "/v1/models/cmimh/versions/1:predict", body),
        ("POST", "/V1/Models/cmimh/Versions/0001:Predict", body),
        ("POST", "/v1/models/%63mimh:predict", body),
    )
    assert [answer.status for answer in answers] == [200, 200, 200]


def test_status_metadata_ready_and_metrics(exported, store):
    status, one, metadata, ready, metrics = run(
        store,
        ("GET", "/v1/models/cmimh", b""),
        ("GET", "/v1/models/cmimh/versions/1", b""),
        ("GET", "/v1/models/cmimh/metadata", b""),
        ("GET", "/readyz", b""),
        ("GET", "/monitoring/prometheus/metrics", b""),
    )
    assert status.json == one.json == {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }  # fmt: skip
    assert metadata.json["model_spec"] == {"name": "cmimh", "signature_name": "", "version": "1"}
    signature = metadata.json["metadata"]["signature_def"]["signature_def"]["hash_image"]
    assert signature["inputs"]["image"]["dtype"] == "DT_FLOAT"
    sizes = [dim["size"] for dim in signature["inputs"]["image"]["tensor_shape"]["dim"]]
    assert sizes == ["-1", "572"]
    assert ready.status == 200
    assert metrics.headers["content-type"].startswith("text/plain")
    text = metrics.body.decode()
    assert "# TYPE :tensorflow:serving:request_count" in text
    assert ":tensorflow:serving:request_count{" not in text


def test_padding_may_be_left_out(store):
    padded, bare = run(
        store,
        predict("hash_caption", instances=[{"b64": "YSBjYXQ="}]),
        predict("hash_caption", instances=[{"b64": "YSBjYXQ"}]),
    )
    assert padded.json == bare.json
