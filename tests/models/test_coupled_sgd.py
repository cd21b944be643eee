import keras
import numpy as np
import pytest

from cmimh_tf.config import OptimizerConfig
from cmimh_tf.models.coupled_sgd import CoupledSGD
from cmimh_tf.models.grouped_optimizers import GroupedOptimizers


def test_two_steps_by_hand():
    variable = keras.Variable([1.0, -2.0])
    optimizer = CoupledSGD(learning_rate=0.1, momentum=0.9, coupled_weight_decay=0.01)
    optimizer.build([variable])
    gradients = [np.array([0.5, 1.0], np.float32), np.array([-1.0, 0.0], np.float32)]
    weights, velocity = np.array([1.0, -2.0]), np.zeros(2)
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
        velocity = 0.9 * velocity + gradient + 0.01 * weights
        weights = weights - 0.1 * velocity
    np.testing.assert_allclose(variable.numpy(), weights, rtol=1e-6)


def test_groups_must_be_disjoint_and_complete():
    first, second = keras.Variable(1.0), keras.Variable(2.0)
    options = OptimizerConfig(schedule="constant")
    GroupedOptimizers({"encoder": [first], "critic": [second]}, [first, second], options)
    with pytest.raises(ValueError, match="exactly once"):
        GroupedOptimizers({"encoder": [first]}, [first, second], options)
    with pytest.raises(ValueError, match="exactly once"):
        GroupedOptimizers({"encoder": [first, second], "critic": [second]}, [first, second], options)
