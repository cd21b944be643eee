"""Detects codes that have collapsed or saturated, and suggests a remedy."""

import sys
from typing import TextIO

import keras
import numpy as np

from cmimh_tf.model import CMIMH
from cmimh_tf.training.callbacks import is_reported

_LOW_MUTUAL_INFORMATION = 0.02
_FAIR_MUTUAL_INFORMATION = 0.5
_UNDECIDED_WITHIN = 0.05
_MUCH = 0.9
# Good runs can look collapsed at first: the critic needs a few hundred steps to learn anything.
_EPOCHS_OF_GRACE = 10


def diagnose(
    image_probs: np.ndarray,
    text_probs: np.ndarray,
    mutual_information: float | None,
    logit_limit: float | None,
) -> list[str]:
    """Problems of a batch of code probabilities, each with a remedy.

    Args:
        image_probs: [rows, code_length] array.
        text_probs: [rows, code_length] array.
        mutual_information: the JS bound of the epoch, None when the term is switched off.
        logit_limit: the clip of the logits, None when there is none.

    Returns:
        One sentence per problem; empty if there is none.
    """
    problems = []
    if mutual_information is not None and mutual_information < _LOW_MUTUAL_INFORMATION:
        problems.append(
            f"collapse: the mutual information bound is {mutual_information:.3f}, so the codes of the two modalities "
            "share nothing. Check that row i of image and text belong together, raise network.input_norm "
            "(10 is a good value), or lower loss.modality_gap_weight and loss.balance_weight."
        )
    ceiling = 1.0 / (1.0 + np.exp(-logit_limit)) - 1e-6 if logit_limit is not None else 1.0 - 1e-6
    for modality, probs in (("image", image_probs), ("text", text_probs)):
        distance = np.abs(probs - 0.5)
        undecided = float(np.mean(distance < _UNDECIDED_WITHIN))
        if undecided > _MUCH:
            problems.append(
                f"collapse: {undecided:.0%} of the {modality} probs are stuck near 0.5. Raise network.input_norm, or "
                "lower loss.modality_gap_weight and loss.independence_weight if they are not 0."
            )
        saturated = float(np.mean(distance >= ceiling - 0.5))
        # Saturated codes are fine as long as they distinguish the pairs.
        if saturated > _MUCH and (mutual_information is None or mutual_information < _FAIR_MUTUAL_INFORMATION):
            problems.append(
                f"saturation: {saturated:.0%} of the {modality} probs are stuck at the clip. Lower "
                "network.input_norm or optimizer.encoder_rate."
            )
        ones = np.mean(probs >= 0.5, axis=0)
        constant = np.flatnonzero((ones == 0) | (ones == 1))
        if len(constant):
            shown = ", ".join(map(str, constant[:8])) + (", ..." if len(constant) > 8 else "")
            problems.append(
                f"dead bits: {len(constant)} of {probs.shape[1]} {modality} bits never change (bit {shown}). Raise "
                "loss.balance_weight, or use fewer bits."
            )
    return problems


class HealthCheck(keras.callbacks.Callback):
    """Checks a fixed sample of training pairs now and then, and prints each kind of problem once.

    Args:
        image: [rows, image_units] sample of the training images.
        text: [rows, text_units] their texts.
        epochs: of the whole run; its last one is checked in any case.
        stream: where to write; None writes to standard output.

    Attributes:
        problems: the problems after the last epoch.
    """

    def __init__(self, image: np.ndarray, text: np.ndarray, epochs: int, stream: TextIO | None = None):
        super().__init__()
        self.epochs = epochs
        self.sample = {"image": image.astype(np.float32), "text": text.astype(np.float32)}
        self.stream = stream if stream is not None else sys.stdout
        self.problems: list[str] = []
        self.reported: set[str] = set()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        model: CMIMH = self.model
        if not is_reported(epoch, self.epochs) and not model.stop_training:
            return
        probs = model(self.sample)
        self.problems = diagnose(
            probs["image_probs"].numpy(),
            probs["text_probs"].numpy(),
            (logs or {}).get("mutual_information"),
            model.config.network.logit_limit,
        )
        if epoch + 1 < _EPOCHS_OF_GRACE:
            return
        for problem in self.problems:
            kind = problem.partition(":")[0]
            if kind not in self.reported:
                self.reported.add(kind)
                self.stream.write(f"warning after epoch {epoch + 1}: {problem}\n")
