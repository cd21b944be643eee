"""The requests with which TF Serving, and our server, warm a version before it takes traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from serving.preprocessing import Preprocessing

WARMUP_FILE = "tf_serving_warmup_requests"
WARMUP_BATCH_SIZES = (1, 8, 64)


def warmup_inputs(preprocessing: Preprocessing) -> dict[str, tuple[str, np.ndarray]]:
    """One harmless row for each signature: {signature: (input name, array of one row)}."""
    image = np.zeros([1, preprocessing.image_width], np.float32)
    text = np.zeros([1, preprocessing.text_width], np.float32)
    example = tf.train.Example()
    example.features.feature["image"].float_list.value.extend(image[0])
    rows = {
        "hash_image": ("image", image),
        "hash_text": ("text", text),
        "hash_image_float_bytes": ("image_float_bytes", _strings(image[0].tobytes())),
        "hash_text_float_bytes": ("text_float_bytes", _strings(text[0].tobytes())),
        "serving_default": ("examples", _strings(example.SerializeToString())),
    }
    if preprocessing.image_bytes_vectors is not None:
        picture = tf.io.encode_png(np.full([32, 32, 3], 128, np.uint8)).numpy()
        rows["hash_image_bytes"] = ("image_bytes", _strings(picture))
    if preprocessing.caption_vectors is not None:
        rows["hash_caption"] = ("caption", _strings(b"a caption"))
    return rows


def write_warmup(
    path: Path,
    rows: Mapping[str, tuple[str, np.ndarray]],
    model_name: str,
    batch_sizes: Sequence[int] = WARMUP_BATCH_SIZES,
) -> None:
    """Writes a TFRecord of PredictionLogs, one for each signature and batch size."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, (input_name, row) in rows.items():
            for batch_size in batch_sizes:
                request = predict_pb2.PredictRequest()
                request.model_spec.name = model_name
                request.model_spec.signature_name = signature
                batch = np.repeat(row, batch_size, axis=0)
                request.inputs[input_name].CopyFrom(tf.make_tensor_proto(batch))
                log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
                writer.write(log.SerializeToString())


def read_warmup(path: Path) -> Iterator[predict_pb2.PredictRequest]:
    """The Predict requests of a warm-up file, in its order.

    Raises:
        tf.errors.DataLossError: if the file is damaged.
    """
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        if log.WhichOneof("log_type") == "predict_log":
            yield log.predict_log.request


def _strings(value: bytes) -> np.ndarray:
    # As objects: numpy's own byte strings drop trailing zeros.
    return np.array([value], object)
