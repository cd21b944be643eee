import numpy as np

from cmimh_tf.config import TrainingConfig, batches_per_epoch
from cmimh_tf.stored_rows import store_rows
from cmimh_tf.training.dataset import training_batches

IMAGE = np.arange(10, dtype=np.float32)[:, None]
TEXT = 100 + np.arange(10, dtype=np.float32)[:, None]


def rows(name="image", **options):
    arguments = {"batch_size": 3, "seed": 0, "first_epoch": 0, "last_epoch": 4, **options}
    return [
        batch[name].numpy()[:, 0].tolist() for batch in training_batches({"image": IMAGE, "text": TEXT}, **arguments)
    ]


def test_an_epoch_is_a_shuffle_without_repeats_and_pairs_stay_together():
    batches = rows()
    assert len(batches) == 4 * batches_per_epoch(10, 3) == 12
    for start in range(0, 12, 3):
        epoch = [row for batch in batches[start : start + 3] for row in batch]
        assert len(set(epoch)) == 9
    assert batches[:3] != batches[3:6]
    assert [[value - 100 for value in batch] for batch in rows("text")] == batches


def test_a_resumed_order_is_the_rest_of_the_unbroken_one():
    assert rows(first_epoch=2) == rows()[6:]
    assert rows(seed=1) != rows()


def test_fewer_pairs_than_a_batch_are_one_batch():
    assert batches_per_epoch(10, 128) == 1
    assert [sorted(batch) for batch in rows(batch_size=128, last_epoch=1)] == [list(range(10))]


def test_coordinates_go_with_their_pairs():
    columns = {"image": IMAGE, "text": TEXT, "coordinates": IMAGE + 0.5}
    for batch in training_batches(columns, 3, 0, 0, 2):
        np.testing.assert_array_equal(batch["coordinates"], batch["image"] + 0.5)


def test_epochs_follow_from_the_steps_unless_they_are_given():
    training = TrainingConfig(batch_size=100, steps=1500)
    assert [training.num_epochs(pairs) for pairs in (50, 1000, 5049, 1_000_000)] == [1500, 150, 30, 1]
    assert TrainingConfig(epochs=7).num_epochs(1000) == 7


def test_stored_rows_give_the_batches_of_arrays(tmp_path):
    columns = {"image": IMAGE, "text": np.hstack([TEXT, -TEXT])}
    stored = store_rows(tmp_path / "rows", [columns])
    assert training_batches(stored, 3, 0, 0, 2).element_spec == training_batches(columns, 3, 0, 0, 2).element_spec
    batches = zip(training_batches(columns, 3, 0, 0, 2), training_batches(stored, 3, 0, 0, 2), strict=True)
    for expected, found in batches:
        for name in columns:
            np.testing.assert_array_equal(expected[name], found[name])
