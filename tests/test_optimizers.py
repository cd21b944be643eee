import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.config import OptimizerConfig
from cmimh_tf.optimizers import CosineSchedule, CoupledSGD, GroupedOptimizer, make_optimizer, set_schedule_length


def grouped(**options):
    first, second = keras.Variable([3.0]), keras.Variable([4.0])
    optimizer = GroupedOptimizer(
        {"encoder": keras.optimizers.SGD(1.0), "discriminator": keras.optimizers.SGD(0.5)}, **options
    )
    optimizer.assign_groups({"encoder": [first], "decoder": [], "discriminator": [second]})
    return optimizer, first, second


def test_two_steps_of_coupled_sgd_by_hand():
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


def test_cosine_schedule_falls_from_the_rate_to_zero_once_its_length_is_known():
    schedule = CosineSchedule(0.2)
    assert schedule.decay_steps is None
    assert float(schedule(7)) == pytest.approx(0.2)
    schedule.decay_steps = 10
    expected = [0.2, 0.1 * (1 + math.cos(math.pi * 0.3)), 0.1, 0.0, 0.0]
    np.testing.assert_allclose([float(schedule(step)) for step in (0, 3, 5, 10, 12)], expected, atol=1e-7)


def test_cosine_schedule_changes_its_length_in_a_traced_function():
    schedule = CosineSchedule(1.0, 10)

    @tf.function
    def rate(step):
        return schedule(step)

    assert float(rate(tf.constant(5))) == pytest.approx(0.5)
    schedule.decay_steps = 20
    assert float(rate(tf.constant(10))) == pytest.approx(0.5)


def test_each_group_steps_with_its_own_optimizer():
    optimizer, first, second = grouped()
    optimizer.apply([tf.constant([1.0]), tf.constant([1.0])], [first, second])
    assert (first.numpy()[0], second.numpy()[0]) == (2.0, 3.5)
    assert int(optimizer.iterations) == 1


def test_the_joint_norm_is_clipped_except_for_unclipped_groups():
    optimizer, first, second = grouped(joint_clip_norm=2.0)
    optimizer.apply([tf.constant([8.0]), tf.constant([8.0])], [first, second])
    assert (first.numpy()[0], second.numpy()[0]) == (1.0, 0.0)
    optimizer.apply([tf.constant([1.0]), tf.constant([0.0])], [first, second])
    assert first.numpy()[0] == 0.0


def test_every_variable_must_be_in_exactly_one_group():
    optimizer, first, second = grouped()
    with pytest.raises(ValueError, match="exactly one group"):
        optimizer.build([first, second, keras.Variable(1.0)])
    optimizer.assign_groups({"encoder": [first, second], "discriminator": [second]})
    with pytest.raises(ValueError, match="exactly one group"):
        optimizer.build([first, second])


def test_a_group_without_an_optimizer_is_named():
    optimizer, first, _ = grouped()
    message = r"must have an entry for each of critic\. Received: encoder, discriminator"
    with pytest.raises(ValueError, match=message):
        optimizer.assign_groups({"critic": [first]})
    with pytest.raises(TypeError, match="must map groups to Keras optimizers"):
        GroupedOptimizer({"encoder": 0.1})


def test_setting_the_learning_rate_scales_all_groups():
    optimizer, _, _ = grouped()
    optimizer.learning_rate = 0.1
    rates = [float(member.learning_rate) for member in optimizer.by_group.values()]
    np.testing.assert_allclose(rates, [0.1, 0.05])
    optimizer.learning_rate = 0.02
    rates = [float(member.learning_rate) for member in optimizer.by_group.values()]
    np.testing.assert_allclose(rates, [0.02, 0.01], rtol=1e-6)


def test_config_round_trip_keeps_every_optimizer():
    optimizer = make_optimizer(OptimizerConfig(decoder_rate=0.003, gradient_clip_norm=7.0))
    set_schedule_length(optimizer, 50)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert again.get_config() == optimizer.get_config()
    assert again.joint_clip_norm == 7.0
    assert float(again.by_group["decoder"]._learning_rate(0)) == pytest.approx(0.003)
    assert again.by_group["critic"]._learning_rate.decay_steps == 50


def test_constant_rates_have_no_schedule():
    optimizer = make_optimizer(OptimizerConfig(schedule="constant"))
    set_schedule_length(optimizer, 50)
    assert float(optimizer.learning_rate) == pytest.approx(0.01)
