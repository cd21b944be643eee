"""Drift: do new data look to a model like the data of its training? `python -m cmimh_tf.data check DATA --model MODEL`.

A training saves the profile of its held-out pairs (`cmimh_tf.metrics.code_profile`) beside the model, and exports carry
it in assets.extra. A sample of the new data is hashed, and its profile is compared with the saved one. Labels are not
used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.records import PairReader, PairRecord
from cmimh_tf.data.sources import EMBEDDED_DATASETS
from cmimh_tf.files import read_json
from cmimh_tf.metrics.code_profile import (
    FALSE_ALARM_RATE,
    GROUP_ROWS,
    PROFILE_FILE,
    PROFILE_ROWS,
    Comparison,
    compare_profiles,
    pairs_are_strangers,
    profile_codes,
)
from cmimh_tf.progress import track
from cmimh_tf.search.models import ModelDescription, describe_model

_MODALITIES = ("image", "text")
_RAW_FIELDS = {"image": "image_bytes", "text": "caption"}
_RAW_NAMES = {"image": "pictures", "text": "captions"}
_SIGNATURES = {
    "image": "hash_image",
    "text": "hash_text",
    "image_bytes": "hash_image_bytes",
    "caption": "hash_caption",
}
_ROWS_AT_ONCE = 64

# The encoder's inputs [B, units] and probabilities [B, L] of B vectors, pictures or captions.
Encode = Callable[[str, Sequence[Any]], tuple[np.ndarray, np.ndarray]]


@dataclass
class DriftCheck:
    """New data compared with those of a model's training.

    Attributes:
        model: the path of the model.
        reference_rows: held-out pairs of its training in the saved profile.
        rows: pairs of the new data that were compared.
        problems: why the data do not fit, in words; empty if they do.
        comparisons: every statistic beside that of training; empty if the model cannot hash the data.
    """

    model: str
    reference_rows: int
    rows: int = 0
    problems: list[str] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {**asdict(self), "false_alarm_rate": FALSE_ALARM_RATE, "fits": self.fits}

    def to_lines(self) -> list[str]:
        """One comparison per line; the last line is the verdict."""
        lines = []
        if self.comparisons:
            lines.append(
                f"{self.model}: {self.rows:,} pairs compared with {self.reference_rows:,} held-out ones of training"
            )
            lines += [f"  {'DIFFERENT' if one.differs else 'same':<12} {one.sentence}" for one in self.comparisons]
        lines += [f"  error        {problem}" for problem in self.problems]
        verdict = "the data fit the model" if self.fits else "the data do not fit the model"
        return [*lines, verdict]


def load_profile(model: str | Path) -> tuple[ModelDescription, dict[str, Any]]:
    """What a model is, and the profile that its training saved. Imports no TensorFlow.

    Raises:
        FileNotFoundError: if there is no model, or it has no profile.
        ValueError: if the files are no model, or the profile cannot be read.
    """
    description = describe_model(model)
    folder = description.path / "assets.extra" if description.is_export else description.path.parent
    file = folder / PROFILE_FILE
    if not file.is_file():
        how = (
            "Export the model again: run the pipeline, or push a run that has the file"
            if description.is_export
            else "Run its training command again: a finished run is not trained again, only measured"
        )
        raise FileNotFoundError(
            f"{file} is missing: the model was trained by an earlier version, or without held-out pairs. {how}."
        )
    try:
        profile = read_json(file)
        if profile["code_length"] != description.code_length or not isinstance(profile["rows"], int):
            raise ValueError(f"it is of codes of {profile['code_length']} bits")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} must be the profile of {description.path}. Received: {error}.") from error
    return description, profile


def check_drift(reader: PairReader, model: str | Path, *, name: str = "", seed: int = 0) -> DriftCheck:
    """Hashes a sample of the data and compares its profile with that of training.

    Args:
        reader: the new data. Records with errors are left out.
        model: a run folder, its .keras file, an exported model, or a folder of exported versions.
        name: what the user called the data; `emoji` and `synthetic` have vectors that a run takes.
        seed: of the sample of 2,000 pairs.

    Raises:
        FileNotFoundError: if there is no model, or it has no profile.
        ValueError: if files are wrong.
    """
    description, reference = load_profile(model)
    check = DriftCheck(str(model), reference["rows"])
    if reference["rows"] < GROUP_ROWS:
        raise ValueError(
            f"{model} must have been trained with at least {GROUP_ROWS} queries to compare with. "
            f"Received: {reference['rows']}."
        )
    encode = _load_export(description.path) if description.is_export else _load_run(description.path)
    inputs: dict[str, list[np.ndarray]] = {modality: [] for modality in _MODALITIES}
    probs: dict[str, list[np.ndarray]] = {modality: [] for modality in _MODALITIES}
    for records in _sampled_batches(reader, description, name, seed):
        for modality in _MODALITIES:
            kind = _kind(records[0], modality)
            problem = _misfit(records, modality, kind, description)
            if problem:
                check.problems.append(problem)
                continue
            rows, row_probs = encode(kind, [getattr(record, kind) for record in records])
            inputs[modality].append(rows)
            probs[modality].append(row_probs)
        if check.problems:
            return check
        check.rows += len(records)
    if check.rows < GROUP_ROWS:
        check.problems.append(f"at least {GROUP_ROWS} pairs are needed to compare. Received: {check.rows}.")
        return check
    profile = profile_codes(_joined(inputs), _joined(probs), seed)
    check.comparisons = compare_profiles(reference, profile)
    check.problems = explain(check.comparisons, pairs_are_strangers(profile))
    return check


def explain(comparisons: Sequence[Comparison], strangers: bool) -> list[str]:
    """What the differences mean, in words; empty without differences.

    Args:
        comparisons: of `compare_profiles`.
        strangers: of `pairs_are_strangers`, for the new data.
    """
    differing = {(one.kind, one.modality): one for one in comparisons if one.differs}
    problems = []
    for modality in _MODALITIES:
        norm, shared = differing.get(("norm", modality)), differing.get(("shared_codes", modality))
        if shared is not None:
            problems.append(
                f"{shared.value:.0%} of the {modality} codes occur more than once among {GROUP_ROWS} "
                f"({shared.reference:.0%} in training): the {_RAW_NAMES[modality]} hardly differ from each other."
            )
        if norm is not None:
            problems.append(
                f"the {modality} inputs are {norm.value / max(norm.reference, 1e-12):.2f} times as long as in "
                "training: the vectors are scaled differently, were made by other features, or show something else."
            )
        if {("bits", modality), ("undecided", modality)} & differing.keys() and norm is None and shared is None:
            problems.append(
                f"the {modality} codes are distributed differently from those of training: the {modality} side shows "
                "something else, or was made by other features."
            )
    if strangers:
        problems.append(
            "the codes of an image and its text are as far apart as those of two pairs: the pairs do not belong "
            "together, or one side was made by other features."
        )
    elif ("pair_distance", "both") in differing:
        problems.append("images and texts of a pair agree less than in training.")
    if ("neighbour_map", "both") in differing and not problems:
        problems.append("the codes find fewer of the nearest pairs than in training.")
    return problems


def _kind(record: PairRecord, modality: str) -> str:
    """The field that is hashed: the vector if there is one."""
    return modality if getattr(record, modality) is not None else _RAW_FIELDS[modality]


def _misfit(records: Sequence[PairRecord], modality: str, kind: str, description: ModelDescription) -> str | None:
    """Why the model cannot hash these records, or None."""
    width = description.widths[modality]
    if kind != modality:
        if modality in description.takes_raw:
            return None
        command = "python -m cmimh_tf.features" if not description.is_export else "the features that it was trained on"
        return (
            f"{records[0].place}: the model takes {modality} vectors of width {width}, not {_RAW_NAMES[modality]}. "
            f"Compute the vectors first, with {command}, or use an exported model that takes {_RAW_NAMES[modality]}."
        )
    for record in records:
        vector = getattr(record, modality)
        if vector is None or len(vector) != width:
            received = "no vector" if vector is None else f"width {len(vector)}"
            return (
                f"{record.place}: `{modality}` must be a vector of width {width}, which the model takes. Received: "
                f"{received}. Were other features used?"
            )
    return None


def _sampled_batches(reader: PairReader, description: ModelDescription, name: str, seed: int) -> Any:
    """Yields lists of records: a sample of 2,000 in the order of the source, all of the same kinds of fields."""
    if name in EMBEDDED_DATASETS and not description.is_export:
        yield from _embedded_batches(name, description, seed)
        return
    index = reader.survey()
    used = np.flatnonzero(index.is_used())
    chosen = set(_sample(used, seed).tolist())
    batch: list[PairRecord] = []
    blocks = [(start, stop) for start, stop in index.blocks if not chosen.isdisjoint(range(start, stop))]
    for start, stop in track(blocks, len(blocks), "hashing", "blocks"):
        for row, record in enumerate(reader.scan(start, stop), start):
            if row not in chosen or isinstance(record, DataError):
                continue
            if batch and (len(batch) == _ROWS_AT_ONCE or _kinds(batch[0]) != _kinds(record)):
                yield batch
                batch = []
            batch.append(record)
    if batch:
        yield batch


def _embedded_batches(name: str, description: ModelDescription, seed: int) -> Any:
    """The vectors that a training on `emoji` or `synthetic` gets; their words depend on the seed of the training."""
    from cmimh_tf.command_line import load_data
    from cmimh_tf.training.run_folder import load_model

    data = load_data(name, load_model(description.path).config.seed)
    rows = _sample(np.arange(len(data)), seed)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        yield [
            PairRecord(str(row), f"{name}, row {row}", image=data.image[row], text=data.text[row])
            for row in rows[start : start + _ROWS_AT_ONCE].tolist()
        ]


def _sample(rows: np.ndarray, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng([seed, 6]).permutation(rows)[:PROFILE_ROWS])


def _kinds(record: PairRecord) -> tuple[str, str]:
    return _kind(record, "image"), _kind(record, "text")


def _joined(parts: Mapping[str, Sequence[np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _load_run(file: Path) -> Encode:
    import tensorflow as tf

    from cmimh_tf.training.run_folder import load_model

    model = load_model(file)

    def encode(kind: str, values: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        vectors = tf.constant(np.stack(values).astype(np.float32))
        return model.scalers[kind](vectors).numpy(), tf.sigmoid(model.code_logits(kind, vectors)).numpy()

    return encode


def _load_export(folder: Path) -> Encode:
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(str(folder))
    except Exception as error:  # Damaged files raise errors of many kinds.
        raise ValueError(f"{folder} cannot be read as an exported model: {error}") from error

    def encode(kind: str, values: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        vectors = tf.constant(np.stack(values) if kind in _MODALITIES else list(values))
        inputs = getattr(loaded, f"encoder_inputs_of_{kind}")(vectors)
        return inputs.numpy(), loaded.signatures[_SIGNATURES[kind]](**{kind: vectors})["probs"].numpy()

    return encode
