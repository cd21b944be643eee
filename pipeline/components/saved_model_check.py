"""SavedModelCheck: the exported model, in a fresh process, must return the codes of the trained model, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_transform as tft
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, InfraBlessing, Model, ModelRun, TransformGraph
from tfx.utils import path_utils

from cmimh_tf.codes import unpack_codes
from cmimh_tf.data.readers.tfrecord import make_example
from cmimh_tf.files import write_json, write_text
from cmimh_tf.training.run_folder import load_model
from pipeline.examples import (
    CAPTION,
    CAPTION_FEATURES,
    IMAGE,
    IMAGE_BYTES,
    IMAGE_FEATURES,
    QUERY,
    TEXT,
    load_transformed,
    read_raw_rows,
    split_files,
)
from pipeline.exported_model import call_signatures, input_of

NUM_ROWS = 32
# Kernels for other batch sizes round differently, so a bit may differ if its probability is this close to 0.5.
_UNDECIDED = 1e-5


@component
def SavedModelCheck(
    examples: InputArtifact[Examples],
    transformed_examples: InputArtifact[Examples],
    transform_graph: InputArtifact[TransformGraph],
    model: InputArtifact[Model],
    model_run: InputArtifact[ModelRun],
    blessing: OutputArtifact[InfraBlessing],
) -> None:
    """Calls every signature with real queries and compares the codes.

    Args:
        examples: raw pairs.
        transformed_examples: the same pairs after Transform.
        transform_graph: the fitted preprocessing.
        model: the exported model.
        model_run: the trained model, before export.
        blessing: read by Pusher.
    """
    spec = tft.TFTransformOutput(transform_graph.uri).transformed_feature_spec()
    pairs = load_transformed(split_files(transformed_examples.uri, QUERY), spec)
    pairs = pairs.take(np.arange(min(NUM_ROWS, len(pairs))))
    raw = read_raw_rows(examples.uri, QUERY, range(len(pairs)))
    trained = load_model(model_run.uri)
    probs = trained({"image": pairs.image, "text": pairs.text})
    expected = {
        "image": (np.asarray(probs["image_probs"]), unpack_codes(trained.hash_images(pairs.image))),
        "text": (np.asarray(probs["text_probs"]), unpack_codes(trained.hash_texts(pairs.text))),
    }
    try:
        batches = request_batches(raw, pairs.image, pairs.text)
        problems = compare(call_signatures(path_utils.serving_model_path(model.uri), batches), expected)
    except RuntimeError as error:
        problems = [str(error)]
    write_json(Path(blessing.uri) / "check.json", {"rows": len(pairs), "problems": problems})
    write_text(Path(blessing.uri) / ("INFRA_NOT_BLESSED" if problems else "INFRA_BLESSED"), "")
    blessing.set_int_custom_property("blessed", int(not problems))


def request_batches(raw: list[dict[str, Any]], image: np.ndarray, text: np.ndarray) -> dict[str, np.ndarray]:
    """A batch for each input that a signature may have; byte strings as hexadecimal digits.

    Args:
        raw: the pairs before Transform.
        image: [rows, units] the same pairs after it.
        text: [rows, units] the same pairs after it.

    Returns:
        Arrays of `rows` entries each; "examples" has 2 * rows, the images first and then the texts.
    """
    batches = {IMAGE: image, TEXT: text}
    names = {"image": input_of(raw[0], (IMAGE, IMAGE_BYTES)), "text": input_of(raw[0], (TEXT, CAPTION))}
    for name in names.values():
        if name in (IMAGE, TEXT):
            batches[name] = np.stack([row[name] for row in raw])
        else:
            batches[name] = _hexadecimal([_encoded(row[name]) for row in raw])
    for name, made in ((IMAGE, IMAGE_FEATURES), (TEXT, CAPTION_FEATURES)):
        # The vectors that a network computed from the same pictures and captions.
        if made in raw[0]:
            batches[name] = np.stack([row[made] for row in raw])
        batches[f"{name}_float_bytes"] = _hexadecimal([row.astype("<f4").tobytes() for row in batches[name]])
    requests = [make_example({key: row[key]}) for key in names.values() for row in raw]
    batches["examples"] = _hexadecimal([example.SerializeToString() for example in requests])
    return batches


def compare(answers: dict[str, np.ndarray], expected: dict[str, tuple[np.ndarray, np.ndarray]]) -> list[str]:
    """Compares the codes with those of the trained model.

    Args:
        answers: by "<signature>/<output>".
        expected: for "image" and "text" probs [rows, L] and bits [rows, L].

    Returns:
        A sentence for each signature whose codes differ.
    """
    both = tuple(np.concatenate(arrays) for arrays in zip(expected["image"], expected["text"], strict=True))
    problems = []
    for name in sorted(answers):
        signature, output = name.split("/")
        if output != "code_bytes":
            continue
        modality = "image" if "image" in signature else "text"
        probs, bits = both if signature == "serving_default" else expected[modality]
        codes = np.stack([np.frombuffer(bytes.fromhex(text), np.uint8) for text in answers[name].tolist()])
        differing = (unpack_codes(codes) != bits) & (np.abs(probs - 0.5) > _UNDECIDED)
        if differing.any():
            row = int(np.argmax(differing.any(axis=1)))
            problems.append(
                f"{signature} must return the trained model's codes. Received: {int(differing.sum())} different bits, "
                f"the first in row {row}."
            )
    return problems


def _encoded(value: Any) -> bytes:
    return value.encode("utf-8") if isinstance(value, str) else value


def _hexadecimal(strings: list[bytes]) -> np.ndarray:
    return np.array([text.hex() for text in strings])
