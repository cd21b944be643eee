"""SGD as the paper runs it: momentum, with the weight decay inside the gradient."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="cmimh_tf")
class CoupledSGD(keras.optimizers.Optimizer):
    """velocity = momentum * velocity + gradient + weight_decay * variable; variable -= rate * velocity.

    `keras.optimizers.SGD(weight_decay=...)` shrinks the variables outside of the momentum (decoupled); here the
    decay is the gradient of an L2 penalty and gathers momentum with the rest.

    Args:
        learning_rate: a number or a schedule.
        momentum: in [0, 1).
        coupled_weight_decay: the factor of the L2 penalty's gradient.

    Attributes:
        gradient_factor: multiplies the next gradients, for a clip that spans several optimisers.
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
        self.gradient_factor: tf.Tensor | float = 1.0

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.velocities = [self.add_variable_from_reference(variable, "velocity") for variable in variables]

    def update_step(self, gradient: tf.Tensor, variable: keras.Variable, learning_rate: tf.Tensor) -> None:
        velocity = self.velocities[self._get_variable_index(variable)]
        updated = self.momentum * velocity + self.gradient_factor * gradient + self.coupled_weight_decay * variable
        self.assign(velocity, updated)
        self.assign_sub(variable, learning_rate * updated)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "coupled_weight_decay": self.coupled_weight_decay,
        }
