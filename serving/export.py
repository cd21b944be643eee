"""Writes the SavedModel that TF Serving loads: encoders, fitted preprocessing and warm-up requests in one folder."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from serving.preprocessing import Preprocessing
from serving.signatures import HashingSignatures
from serving.warmup import WARMUP_BATCH_SIZES, WARMUP_FILE, warmup_inputs, write_warmup

if TYPE_CHECKING:
    from cmimh_tf.models.cmimh import CMIMH

EXTRA_ASSETS = "assets.extra"
MODEL_NAME = "cmimh"


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

    The folder appears at once and complete, so that a server that polls its parent never sees half of it.

    Args:
        model: the trained model.
        directory: the version's folder, such as `serving_model/cmimh/1`; may exist, but must be empty.
        preprocessing: the fitted preprocessing; None sends vectors to the encoders as they are.
        extra_assets: further files for `assets.extra/` by name, such as `metrics.json`. `config.json` and
            `model_card.md` are written unless they are given here.
        warmup_batch_sizes: rows of the warm-up requests, each sent to every signature.
        model_name: the name under which the model will be served, for the warm-up requests.

    Raises:
        FileExistsError: if the folder holds something.
        ValueError: if the name of an extra asset is not a plain file name.
    """
    target = Path(os.path.abspath(directory))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"`directory` must be new or empty. Received: {os.fspath(directory)!r}.")
    preprocessing = preprocessing or Preprocessing(model.image_units, model.text_units)
    assets = {
        "config.json": json.dumps(description(model, preprocessing), indent=2) + "\n",
        "model_card.md": model_card(model),
        **(extra_assets or {}),
    }
    for name in assets:
        if name in ("", ".", "..", WARMUP_FILE) or Path(name).name != name:
            raise ValueError(f"`extra_assets` must be keyed by plain file names. Received: {name!r}.")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".tmp-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        module = HashingSignatures(model, preprocessing)
        tf.saved_model.save(module, str(temporary), signatures=module.functions())
        _declare_widths(temporary, {"image": preprocessing.image_width, "text": preprocessing.text_width})
        folder = temporary / EXTRA_ASSETS
        folder.mkdir()
        for name, content in assets.items():
            (folder / name).write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        write_warmup(folder / WARMUP_FILE, warmup_inputs(preprocessing), model_name, warmup_batch_sizes)
        os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def next_version(base: str | os.PathLike[str]) -> Path:
    """The folder for the next version below `base`: one more than the greatest number there."""
    versions = [int(entry.name) for entry in Path(base).glob("*") if entry.name.isdecimal()]
    return Path(base) / str(max(versions, default=0) + 1)


def description(model: CMIMH, preprocessing: Preprocessing) -> dict[str, object]:
    """What `assets.extra/config.json` says: the configuration and what the signatures take."""
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
    """A model card of what is known without the data; `extra_assets` may bring a better one."""
    return (
        f"# CMIMH, {model.config.code_length} bits\n\n"
        "Hashes pictures and texts, or their feature vectors, to binary codes; near codes mean related items of\n"
        "either kind. Trained without labels (Hoang et al., IEEE TNNLS 2023).\n\n"
        f"- inputs: image features of width {model.image_units}, text features of width {model.text_units}\n"
        f"- output: codes of {model.config.code_length // 8} bytes, least significant bit first, compared by Hamming\n"
        "  distance\n"
        "- limits: only inputs like those it was trained on; codes of two trained models must not be mixed\n"
    )


def _declare_widths(folder: Path, widths: Mapping[str, int]) -> None:
    """Declares the width of float inputs in the signatures.

    They were traced with an open width, so that a wrong one reaches the check in the graph; but clients read the
    expected width from the metadata.
    """
    path = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for signature in saved_model.meta_graphs[0].signature_def.values():
        for name, tensor in signature.inputs.items():
            if name in widths and tensor.dtype == tf.float32.as_datatype_enum:
                tensor.tensor_shape.dim[1].size = widths[name]
    path.write_bytes(saved_model.SerializeToString(deterministic=True))
