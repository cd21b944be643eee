"""Four optimisers over disjoint groups of variables, stepped together."""

from collections.abc import Mapping, Sequence
from functools import partial

import keras
import tensorflow as tf

from cmimh_tf.config import OptimizerConfig
from cmimh_tf.models.coupled_sgd import CoupledSGD

GROUPS = ("encoder", "decoder", "critic", "discriminator")
_NEVER_CLIPPED = "discriminator"


class GroupedOptimizers:
    """One `CoupledSGD` a group of networks, with a joint gradient clip.

    Args:
        groups: the trainable variables of each of `GROUPS`; empty groups are left out.
        all_variables: every trainable variable of the model, to check the groups against.
        options: rates, momentum, weight decay, clip and schedule.
        total_steps: length of the training, which the cosine schedule needs.

    Raises:
        ValueError: if a variable is in no group or in two, or a cosine schedule has no length.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[keras.Variable]],
        all_variables: Sequence[keras.Variable],
        options: OptimizerConfig,
        total_steps: int | None = None,
    ):
        grouped = [id(variable) for variables in groups.values() for variable in variables]
        if len(grouped) != len(set(grouped)) or set(grouped) != {id(variable) for variable in all_variables}:
            raise ValueError("`groups` must hold every trainable variable exactly once.")
        if options.schedule == "cosine" and not total_steps:
            raise ValueError(f"`total_steps` must be given for a cosine schedule. Received: total_steps={total_steps}.")
        self.groups = {group: list(variables) for group, variables in groups.items() if variables}
        self.clip_norm = options.gradient_clip_norm
        self.optimizers: dict[str, CoupledSGD] = {}
        for group, variables in self.groups.items():
            rate = getattr(options, f"{group}_rate")
            if options.schedule == "cosine":
                rate = keras.optimizers.schedules.CosineDecay(rate, total_steps)
            self.optimizers[group] = CoupledSGD(rate, options.momentum, options.weight_decay, name=f"{group}_sgd")
            self.optimizers[group].build(variables)
        self._compiled_steps = {
            group: tf.function(partial(self._step, group), jit_compile=True) for group in self.groups
        }

    @property
    def variables(self) -> list[keras.Variable]:
        """The states of all optimisers, in a fixed order."""
        return [variable for optimizer in self.optimizers.values() for variable in optimizer.variables]

    def gradients(self, tape: tf.GradientTape, objective: tf.Tensor, own_objectives: Mapping[str, tf.Tensor]) -> dict:
        """The gradients of each group, of its own objective where it has one.

        Args:
            tape: a persistent tape.
            objective: what all other groups minimise.
            own_objectives: group to scalar, such as the discriminators' loss.

        Returns:
            Group to list of tensors.
        """
        return {
            group: tape.gradient(own_objectives.get(group, objective), [variable.value for variable in variables])
            for group, variables in self.groups.items()
        }

    def apply(self, gradients: Mapping[str, Sequence[tf.Tensor]]) -> None:
        """Clips the joint norm of all but the discriminators' gradients, then steps each optimiser.

        Each step is compiled by XLA: decay, clip, momentum and update then read and write a variable once, where
        TensorFlow's own kernels pass over memory for each of them. The groups are apart so that they run in parallel.
        """
        factor = self._clip_factor(gradients)
        for group in self.groups:
            self._compiled_steps[group](list(gradients[group]), tf.ones([]) if group == _NEVER_CLIPPED else factor)

    def _step(self, group: str, gradients: Sequence[tf.Tensor], factor: tf.Tensor) -> None:
        optimizer = self.optimizers[group]
        optimizer.gradient_factor = factor
        optimizer.apply(gradients, self.groups[group])

    def _clip_factor(self, gradients: Mapping[str, Sequence[tf.Tensor]]) -> tf.Tensor:
        if self.clip_norm is None:
            return tf.ones([])
        clipped = [gradient for group in gradients if group != _NEVER_CLIPPED for gradient in gradients[group]]
        # ||g|| = sqrt(2 sum l2_loss(g)); l2_loss reads each gradient once and writes nothing.
        norm = tf.sqrt(2.0 * tf.add_n([tf.nn.l2_loss(gradient) for gradient in clipped]))
        return self.clip_norm / tf.maximum(norm, self.clip_norm)
