"""The optimizers of CMIMH: SGD as the paper runs it, a cosine schedule, and one optimizer per group of networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from cmimh_tf.config import OptimizerConfig

_XLA_PARAMETERS = 500_000
GROUPS = ("encoder", "decoder", "critic", "discriminator")


@keras.saving.register_keras_serializable(package="cmimh_tf")
class CosineSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """rate * (1 + cos(pi * step / decay_steps)) / 2: from `initial_learning_rate` down to 0.

    `CMIMH.fit` sets the length to the number of steps of the training. Until then the rate is constant.

    Args:
        initial_learning_rate: the rate of the first step.
        decay_steps: the number of steps until the rate is 0; None until `fit` sets it.
    """

    def __init__(self, initial_learning_rate: float, decay_steps: int | None = None):
        super().__init__()
        self.initial_learning_rate = initial_learning_rate
        # A variable, so that a compiled training step sees a new length without being traced again.
        self._decay_steps = tf.Variable(float(decay_steps or 0), trainable=False, dtype=tf.float32)

    @property
    def decay_steps(self) -> int | None:
        """The number of steps until the rate is 0; None if it has not been set."""
        return int(self._decay_steps.numpy()) or None

    @decay_steps.setter
    def decay_steps(self, steps: int) -> None:
        self._decay_steps.assign(float(steps))

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        steps = self._decay_steps.read_value()
        done = tf.minimum(tf.cast(step, tf.float32) / tf.maximum(steps, 1.0), 1.0)
        factor = 0.5 * (1.0 + tf.cos(math.pi * done))
        return self.initial_learning_rate * tf.where(steps > 0, factor, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {"initial_learning_rate": self.initial_learning_rate, "decay_steps": self.decay_steps}


@keras.saving.register_keras_serializable(package="cmimh_tf")
class CoupledSGD(keras.optimizers.Optimizer):
    """velocity = momentum * velocity + gradient + weight_decay * variable; variable -= rate * velocity.

    `keras.optimizers.SGD(weight_decay=...)` shrinks the variables outside of the momentum (decoupled decay). Here the
    decay is the gradient of an L2 penalty and accumulates in the velocity with the rest.

    Args:
        learning_rate: a number or a schedule.
        momentum: in [0, 1).
        coupled_weight_decay: the factor of the L2 penalty's gradient.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        momentum: float = 0.9,
        coupled_weight_decay: float = 0.0,
        name: str = "coupled_sgd",
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.momentum = momentum
        self.coupled_weight_decay = coupled_weight_decay

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.velocities = [self.add_variable_from_reference(variable, "velocity") for variable in variables]

    def update_step(self, gradient: tf.Tensor, variable: keras.Variable, learning_rate: tf.Tensor) -> None:
        velocity = self.velocities[self._get_variable_index(variable)]
        updated = self.momentum * velocity + gradient + self.coupled_weight_decay * variable
        self.assign(velocity, updated)
        self.assign_sub(variable, learning_rate * updated)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "coupled_weight_decay": self.coupled_weight_decay,
        }


@keras.saving.register_keras_serializable(package="cmimh_tf")
class GroupedOptimizer(keras.optimizers.Optimizer):
    """One optimizer per group of networks, stepped together.

    Unlike `keras.optimizers.MultiOptimizer`, it clips the joint gradient norm of several groups and compiles the steps.
    The model assigns its variables to the groups (`assign_groups`) before the first step. `learning_rate` is the rate
    of the first group; setting it scales the rates of all groups by the same factor.

    Args:
        optimizers: one Keras optimizer per group, by the name of the group.
        joint_clip_norm: limit of the joint gradient norm of all clipped groups; None never clips.
        unclipped: the groups whose gradients are neither counted nor clipped.

    Example:
        >>> adam = {group: keras.optimizers.Adam(1e-3) for group in ("encoder", "decoder", "critic", "discriminator")}
        >>> model.compile(optimizer=adam)
    """

    def __init__(
        self,
        optimizers: Mapping[str, keras.optimizers.Optimizer],
        joint_clip_norm: float | None = None,
        unclipped: Sequence[str] = ("discriminator",),
        name: str = "grouped_optimizer",
        **kwargs: Any,
    ):
        super().__init__(learning_rate=0.0, name=name, **kwargs)
        wrong = {
            group: value for group, value in optimizers.items() if not isinstance(value, keras.optimizers.Optimizer)
        }
        if not optimizers or wrong:
            raise TypeError(f"`optimizers` must map groups to Keras optimizers. Received: {dict(optimizers)}.")
        self.by_group = dict(optimizers)
        self.joint_clip_norm = joint_clip_norm
        self.unclipped = tuple(unclipped)
        self.groups: dict[str, list[keras.Variable]] = {}

    def assign_groups(self, groups: Mapping[str, Sequence[keras.Variable]]) -> None:
        """Assigns variables to optimizers; groups without variables are left out.

        Raises:
            ValueError: if a group has no optimizer.
        """
        filled = {group: list(variables) for group, variables in groups.items() if variables}
        missing = [group for group in filled if group not in self.by_group]
        if missing:
            raise ValueError(
                f"`optimizer` must have an entry for each of {', '.join(filled)}. Received: {', '.join(self.by_group)}."
            )
        self.groups = filled

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the state of all optimizers.

        Raises:
            ValueError: if a variable is in no group or in two.
        """
        if self.built:  # type: ignore[has-type]
            return
        grouped = [id(variable) for group in self.groups.values() for variable in group]
        if len(grouped) != len(set(grouped)) or set(grouped) != {id(variable) for variable in variables}:
            raise ValueError("`assign_groups` must assign every trainable variable to exactly one group.")
        for group, members in self.groups.items():
            self.by_group[group].build(members)
        # Compiled by XLA, a step reads and writes each variable once; TensorFlow's own kernels pass over the memory
        # several times. The groups are compiled separately so that they run in parallel. Compiling takes seconds, which
        # small networks never earn back.
        self._steps = {}
        for group, members in self.groups.items():
            step = partial(self._step, group)
            is_large = sum(math.prod(variable.shape) for variable in members) >= _XLA_PARAMETERS
            self._steps[group] = tf.function(step, jit_compile=True) if is_large else step
        self.built = True

    def apply(self, grads: Sequence[tf.Tensor], trainable_variables: Sequence[keras.Variable] | None = None) -> None:
        """Clips the joint norm and steps each optimizer.

        Args:
            grads: one gradient per variable.
            trainable_variables: the variables, in the same order.
        """
        if trainable_variables is None:
            raise ValueError("`trainable_variables` must be given.")
        if not self.built:
            self.build(list(trainable_variables))
        gradient_of = {id(variable): grad for variable, grad in zip(trainable_variables, grads, strict=True)}
        gradients = {group: [gradient_of[id(v)] for v in members] for group, members in self.groups.items()}
        factor = self._clip_factor(gradients)
        one_replica = tf.distribute.get_strategy().num_replicas_in_sync == 1
        for group, values in gradients.items():
            step = self._steps[group] if one_replica else partial(self._step, group)
            step(values, tf.ones([]) if group in self.unclipped else factor)

    def _step(self, group: str, gradients: Sequence[tf.Tensor], factor: tf.Tensor) -> None:
        self.by_group[group].apply([factor * gradient for gradient in gradients], self.groups[group])

    def _clip_factor(self, gradients: Mapping[str, Sequence[tf.Tensor]]) -> tf.Tensor:
        if self.joint_clip_norm is None:
            return tf.ones([])
        clipped = [gradient for group in gradients if group not in self.unclipped for gradient in gradients[group]]
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            # The norm of the sum, which is what the optimizers apply.
            clipped = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, clipped)
        # ||g|| = sqrt(2 sum l2_loss(g)); l2_loss reads each gradient once and writes nothing.
        norm = tf.sqrt(2.0 * tf.add_n([tf.nn.l2_loss(gradient) for gradient in clipped]))
        return self.joint_clip_norm / tf.maximum(norm, self.joint_clip_norm)

    @property
    def variables(self) -> list[keras.Variable]:
        """The states of all optimizers, in a fixed order."""
        return [variable for group in self.groups for variable in self.by_group[group].variables]

    @property
    def iterations(self) -> keras.Variable:
        """The number of steps taken."""
        return self._first.iterations

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the first group."""
        return self._first.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        factor = float(learning_rate) / float(self.learning_rate)
        for optimizer in self.by_group.values():
            optimizer.learning_rate = factor * float(optimizer.learning_rate)

    @property
    def _first(self) -> keras.optimizers.Optimizer:
        return next(iter(self.by_group.values()))

    def save_own_variables(self, store: Any) -> None:
        """Nothing: Keras saves each group's optimizer on its own."""

    def load_own_variables(self, store: Any) -> None:
        """Nothing: Keras loads each group's optimizer on its own."""

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "optimizers": {
                group: keras.saving.serialize_keras_object(optimizer) for group, optimizer in self.by_group.items()
            },
            "joint_clip_norm": self.joint_clip_norm,
            "unclipped": list(self.unclipped),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> GroupedOptimizer:
        optimizers = {
            group: keras.saving.deserialize_keras_object(value, custom_objects=custom_objects)
            for group, value in config["optimizers"].items()
        }
        return cls(**{**config, "optimizers": optimizers})


def make_optimizer(options: OptimizerConfig) -> GroupedOptimizer:
    """The optimizer that a configuration describes: `CoupledSGD` with one learning rate per group."""

    def rate(group: str) -> float | CosineSchedule:
        value = getattr(options, f"{group}_rate")
        return CosineSchedule(value) if options.schedule == "cosine" else value

    optimizers = {
        group: CoupledSGD(rate(group), options.momentum, options.weight_decay, name=f"{group}_sgd") for group in GROUPS
    }
    return GroupedOptimizer(optimizers, joint_clip_norm=options.gradient_clip_norm)


def set_schedule_length(optimizer: keras.optimizers.Optimizer, steps: int) -> None:
    """Sets the length of every `CosineSchedule` of `optimizer` to `steps` more than it has taken."""
    members = list(optimizer.by_group.values()) if isinstance(optimizer, GroupedOptimizer) else [optimizer]
    for member in members:
        # Keras's `learning_rate` property evaluates the schedule; the schedule itself is this attribute.
        schedule = member._learning_rate
        if isinstance(schedule, CosineSchedule):
            schedule.decay_steps = int(member.iterations.numpy()) + steps
