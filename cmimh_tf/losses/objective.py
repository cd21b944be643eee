"""The weighted sum of the terms."""

from collections.abc import Mapping

import tensorflow as tf

from cmimh_tf.config import LossConfig

_REFERENCE_CODE_LENGTH = 32


def term_names(weights: LossConfig) -> list[str]:
    """The names of the terms that are switched on, as `CMIMH.compute_losses` returns them."""
    switches = {
        "reconstruction": weights.reconstruction_weight,
        "cross_reconstruction": weights.cross_reconstruction_weight,
        "mutual_information": weights.mutual_information_weight,
        "modality_gap": weights.modality_gap_weight,
        "total_correlation": weights.independence_weight,
        "discriminator": weights.independence_weight,
        "balance": weights.balance_weight,
    }
    return [name for name, weight in switches.items() if weight]


def weighted_sum(losses: Mapping[str, tf.Tensor], weights: LossConfig, code_length: int, step: tf.Tensor) -> tf.Tensor:
    """What encoders, decoders and critic minimise:

        reconstruction - l1 * I_JS + l2 * D_SKL + l3 * L_ind + l4 * L_bal

    Args:
        losses: the unweighted terms by name; the discriminators' own loss is not part of the sum.
        weights: the configured weights.
        code_length: the number of bits.
        step: scalar, the number of steps taken.

    Returns:
        Scalar.
    """
    # Terms that sum over bits would outgrow the others as codes get longer.
    per_bit = _REFERENCE_CODE_LENGTH / code_length if weights.scale_by_code_length else 1.0
    gap_weight = per_bit * weights.modality_gap_weight
    if weights.modality_gap_warmup_steps:
        gap_weight *= tf.minimum(1.0, tf.cast(step, tf.float32) / weights.modality_gap_warmup_steps)
    signed_weights = {
        "reconstruction": weights.reconstruction_weight,
        "cross_reconstruction": weights.cross_reconstruction_weight,
        "mutual_information": -weights.mutual_information_weight,
        "modality_gap": gap_weight,
        "total_correlation": per_bit * weights.independence_weight,
        "balance": per_bit * weights.balance_weight,
    }
    return tf.add_n([weight * losses[name] for name, weight in signed_weights.items() if name in losses])
