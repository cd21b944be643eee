"""Exports a model for TF Serving: a SavedModel of encoders and preprocessing, with warm-up requests."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from cmimh_tf.checksums import CHECKSUM_FILE, EXTRA_ASSETS, write_export_checksums
from cmimh_tf.files import TEMPORARY_PREFIX, atomic_folder
from serving.preprocessing import Preprocessing
from serving.signatures import HashingSignatures

if TYPE_CHECKING:
    from cmimh_tf.model import CMIMH

MODEL_NAME = "cmimh"
WARMUP_FILE = "tf_serving_warmup_requests"
WARMUP_BATCH_SIZES = (1, 8, 64)
_LEFTOVER_SECONDS = 3600


def export_model(
    model: CMIMH,
    directory: str | os.PathLike[str],
    *,
    preprocessing: Preprocessing | None = None,
    extra_assets: Mapping[str, str | bytes] | None = None,
    warmup_batch_sizes: Sequence[int] = WARMUP_BATCH_SIZES,
    model_name: str = MODEL_NAME,
) -> None:
    """Writes one version of the served model.

    The folder gets its name when it is complete, so a server that polls its parent never loads half of it.

    Args:
        model: the trained model.
        directory: the version's folder, such as `serving_model/cmimh/1`; it may exist, but must be empty.
        preprocessing: the fitted preprocessing; None passes vectors to the encoders unchanged.
        extra_assets: further files for `assets.extra/` by name, such as `metrics.json`. `config.json` and
            `model_card.md` are written unless they are given here.
        warmup_batch_sizes: numbers of rows of the warm-up requests for every signature.
        model_name: the name under which the model will be served, for the warm-up requests.

    Raises:
        FileExistsError: if the folder is not empty.
        ValueError: if the model is not built, or the name of an extra asset is not a plain file name.
    """
    target = Path(os.path.abspath(directory))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"`directory` must be new or empty. Received: {os.fspath(directory)!r}.")
    if model.image_units is None or model.text_units is None:
        raise ValueError("`model` must be trained, or built with `image_units` and `text_units`.")
    preprocessing = preprocessing or Preprocessing(model.image_units, model.text_units)
    assets = {
        "config.json": json.dumps(description(model, preprocessing), indent=2) + "\n",
        "model_card.md": model_card(model),
        **(extra_assets or {}),
    }
    for name in assets:
        if name in ("", ".", "..", WARMUP_FILE, CHECKSUM_FILE) or Path(name).name != name:
            raise ValueError(f"`extra_assets` must be keyed by plain file names. Received: {name!r}.")
    if target.exists():
        target.rmdir()
    with atomic_folder(target) as temporary:
        module = HashingSignatures(model, preprocessing)
        tf.saved_model.save(module, str(temporary), signatures=module.functions())
        _declare_widths(temporary, {"image": preprocessing.image_width, "text": preprocessing.text_width})
        folder = temporary / EXTRA_ASSETS
        folder.mkdir()
        for name, content in assets.items():
            (folder / name).write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        write_warmup(folder / WARMUP_FILE, warmup_inputs(preprocessing), model_name, warmup_batch_sizes)
        write_export_checksums(temporary)


def next_version(base: str | os.PathLike[str]) -> Path:
    """The folder of the next version below `base`: the greatest number there plus one."""
    versions = [int(entry.name) for entry in Path(base).glob("*") if entry.name.isdecimal()]
    return Path(base) / str(max(versions, default=0) + 1)


def remove_leftovers(base: str | os.PathLike[str]) -> None:
    """Removes what exports to `base` left behind that were killed more than an hour ago."""
    for folder in Path(base).glob(f"{TEMPORARY_PREFIX}*"):
        if time.time() - folder.stat().st_mtime > _LEFTOVER_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def description(model: CMIMH, preprocessing: Preprocessing) -> dict[str, object]:
    """The content of `assets.extra/config.json`: the configuration, and the inputs of the signatures."""
    return {
        "config": model.config.to_dict(),
        "image_width": preprocessing.image_width,
        "text_width": preprocessing.text_width,
        "image_units": model.image_units,
        "text_units": model.text_units,
        "takes_image_bytes": preprocessing.image_bytes_vectors is not None,
        "takes_captions": preprocessing.caption_vectors is not None,
        "image_features": preprocessing.image_features_version,
        "text_features": preprocessing.text_features_version,
    }


def model_card(model: CMIMH) -> str:
    """A model card without results; `extra_assets` may replace it."""
    return (
        f"# CMIMH, {model.config.code_length} bits\n\n"
        "Hashes pictures and texts, or their feature vectors, to binary codes. Related items of either kind have\n"
        "codes with a small Hamming distance. Trained without labels (Hoang et al., IEEE TNNLS 2023).\n\n"
        f"- inputs: image features of width {model.image_units}, text features of width {model.text_units}\n"
        f"- output: codes of {model.config.code_length // 8} bytes, least significant bit first\n"
        "- limits: inputs must resemble the training data; codes of two models cannot be compared\n"
    )


def _declare_widths(folder: Path, widths: Mapping[str, int]) -> None:
    """Declares the width of float inputs in the signatures, where clients read it.

    The functions were traced with an open width, so that the check in the graph reports a wrong one.
    """
    path = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for signature in saved_model.meta_graphs[0].signature_def.values():
        for name, tensor in signature.inputs.items():
            if name in widths and tensor.dtype == tf.float32.as_datatype_enum:
                tensor.tensor_shape.dim[1].size = widths[name]
    path.write_bytes(saved_model.SerializeToString(deterministic=True))


def warmup_inputs(preprocessing: Preprocessing) -> dict[str, tuple[str, np.ndarray]]:
    """One row for each signature: {signature: (input name, array of one row)}."""
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
    """Writes a TFRecord of PredictionLogs, one per signature and batch size."""
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
    """The Predict requests of a warm-up file, in order.

    Raises:
        tf.errors.DataLossError: if the file is damaged.
    """
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        if log.WhichOneof("log_type") == "predict_log":
            yield log.predict_log.request


def _strings(value: bytes) -> np.ndarray:
    # An array of objects, because NumPy's byte strings drop trailing zeros.
    return np.array([value], object)
