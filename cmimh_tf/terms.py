"""The terms of the objective in one table: what they are called, how they are weighed, and how they are printed.

The table drives the configuration (`loss.<name>_weight`), the weighted sum, the trackers, the plots, the search space
of the tuner and the documentation. To add a term, add an entry here and a function of the same name to
`cmimh_tf.losses`. The function's parameters are names of tensors that `CMIMH.compute_losses` offers (see `TENSORS`).

This module imports no TensorFlow, so that commands can check a configuration before they load it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmimh_tf.config import LossConfig

REFERENCE_CODE_LENGTH = 32

# What the functions in `cmimh_tf.losses` may ask for. B is the batch size, L the code length.
TENSORS: Mapping[str, str] = {
    "image_features": "scaled image features, [B, image_units]",
    "text_features": "scaled text features, [B, text_units]",
    "coordinates": "where the pairs lie among the others, [B, units] (`cmimh_tf.training.neighbourhood`)",
    "image_logits": "logits of the image bits, [B, L]",
    "text_logits": "logits of the text bits, [B, L]",
    "image_probs": "sigmoid of the logits, [B, L]",
    "text_probs": "sigmoid of the logits, [B, L]",
    "image_codes": "sampled bits with a straight-through gradient, [B, L]",
    "text_codes": "sampled bits with a straight-through gradient, [B, L]",
    "coordinates_from_image": "coordinates decoded from the image code, [B, units]",
    "coordinates_from_text": "coordinates decoded from the text code, [B, units]",
    "image_from_image": "image features decoded from the image code, [B, image_units]",
    "text_from_text": "text features decoded from the text code, [B, text_units]",
    "image_from_text": "image features decoded from the text code, [B, image_units]",
    "text_from_image": "text features decoded from the image code, [B, text_units]",
    "critic_scores": "scores T of all image-text pairs, [samples, B, B]",
    "critic_negatives": "1 where an entry of the scores is a negative pair, else 0, [B, B]",
    "image_joint_logits": "discriminator logits of the image probs, [B, 1]",
    "text_joint_logits": "discriminator logits of the text probs, [B, 1]",
    "image_shuffled_logits": "discriminator logits of the image probs shuffled per bit, [B, 1]",
    "text_shuffled_logits": "discriminator logits of the text probs shuffled per bit, [B, 1]",
}


@dataclass(frozen=True)
class Term:
    """One term of the objective.

    Attributes:
        name: of the term, of its function in `cmimh_tf.losses`, and of its weight, `loss.<name>_weight`.
        symbol: in printed equations.
        title: for plots and tables.
        weight: the default weight.
        weight_symbol: the paper's name of the weight, or None; the tuner searches the weights that have one.
        search_start: where the tuner starts if the weight is 0 in the preset.
        sign: 1 if the term is minimised, -1 if it is maximised.
        sums_over_bits: whether the term grows with the code length, so that `loss.scale_by_code_length` applies.
        warmup: the key of the loss configuration with the steps over which the weight rises from 0, or None.
        reduction: the key of the loss configuration with the function's `reduction`, or None if it has none.
    """

    name: str
    symbol: str
    title: str
    weight: float
    weight_symbol: str | None = None
    search_start: float = 0.0
    sign: int = 1
    sums_over_bits: bool = False
    warmup: str | None = None
    reduction: str | None = None

    @property
    def weight_key(self) -> str:
        """The field of `LossConfig`."""
        return f"{self.name}_weight"

    @property
    def function(self) -> Callable[..., Any]:
        """The function in `cmimh_tf.losses`."""
        return getattr(importlib.import_module("cmimh_tf.losses"), self.name)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the tensors that the function takes."""
        return tuple(name for name in inspect.signature(self.function).parameters if name != "reduction")

    def value(self, tensors: Mapping[str, Any], options: LossConfig) -> Any:
        """The unweighted term, a scalar tensor."""
        reduction = {"reduction": getattr(options, self.reduction)} if self.reduction else {}
        return self.function(**{name: tensors[name] for name in self.tensors}, **reduction)

    def scales_with_code_length(self, options: LossConfig) -> bool:
        """Whether the weight is multiplied by 32 / code length."""
        is_mean = self.reduction is not None and getattr(options, self.reduction) == "mean"
        return self.sums_over_bits and options.scale_by_code_length and not is_mean


TERMS: tuple[Term, ...] = (
    Term("neighbourhood", "L_nbr", "neighbourhood", weight=1.0),
    Term("reconstruction", "L_rec", "reconstruction", weight=0.0, reduction="reconstruction_reduction"),
    Term(
        "cross_reconstruction",
        "L_cross",
        "cross reconstruction",
        weight=0.0,
        reduction="reconstruction_reduction",
    ),
    Term(
        "mutual_information",
        "I_JS",
        "mutual information (JS)",
        weight=0.0,
        weight_symbol="λ1",
        search_start=40.0,
        sign=-1,
    ),
    Term(
        "modality_gap",
        "D_SKL",
        "modality gap (SKL)",
        weight=0.0,
        weight_symbol="λ2",
        search_start=0.75,
        sums_over_bits=True,
        warmup="modality_gap_warmup_steps",
        reduction="modality_gap_reduction",
    ),
    Term(
        "independence",
        "L_ind",
        "independence (TC)",
        weight=0.0,
        weight_symbol="λ3",
        search_start=2.5,
        sums_over_bits=True,
    ),
    Term("balance", "L_bal", "balance", weight=0.0, weight_symbol="λ4", search_start=0.01, sums_over_bits=True),
)


def active_terms(options: LossConfig) -> list[Term]:
    """The terms whose weight is not 0."""
    return [term for term in TERMS if options.weight(term.name)]


def weighted_sum(losses: Mapping[str, Any], options: LossConfig, code_length: int, step: Any) -> Any:
    """What encoders, decoders and critic minimise.

    Args:
        losses: the unweighted terms by name; terms that are missing add nothing, and other entries, such as the
            discriminators' loss, are ignored.
        options: the weights.
        code_length: the number of bits.
        step: scalar tensor, the number of steps taken.

    Returns:
        A scalar tensor.
    """
    import tensorflow as tf

    products = []
    for term in active_terms(options):
        if term.name not in losses:
            continue
        weight = term.sign * options.weight(term.name)
        if term.scales_with_code_length(options):
            weight *= REFERENCE_CODE_LENGTH / code_length
        warmup_steps = getattr(options, term.warmup) if term.warmup else 0
        if warmup_steps:
            weight *= tf.minimum(1.0, tf.cast(step, tf.float32) / warmup_steps)
        products.append(weight * losses[term.name])
    return tf.add_n(products) if products else tf.zeros([])


def equation(options: LossConfig) -> str:
    """The objective as it is trained, such as "L_rec - 4 I_JS + 1.5 D_SKL"."""
    parts: list[str] = []
    for term in active_terms(options):
        weight = options.weight(term.name)
        sign = "-" if term.sign < 0 else "+"
        product = term.symbol if weight == 1.0 else f"{weight:g} {term.symbol}"
        if term.scales_with_code_length(options):
            product = f"{weight:g} ({REFERENCE_CODE_LENGTH}/L) {term.symbol}"
        parts.append(f" {sign} {product}" if parts else (f"-{product}" if sign == "-" else product))
    return "".join(parts)
