import numpy as np

from cmimh_tf.stored_rows import store_rows
from cmimh_tf.training.dataset import steps_per_epoch, training_batches

IMAGE = np.arange(10, dtype=np.float32)[:, None]
TEXT = 100 + np.arange(10, dtype=np.float32)[:, None]


def rows(name="image", **options):
    arguments = {"batch_size": 3, "seed": 0, "first_epoch": 0, "last_epoch": 4, **options}
    return [
        batch[name].numpy()[:, 0].tolist() for batch in training_batches({"image": IMAGE, "text": TEXT}, **arguments)
    ]


def test_an_epoch_is_a_shuffle_without_repeats_and_pairs_stay_together():
    batches = rows()
    assert len(batches) == 4 * steps_per_epoch(10, 3) == 12
    for start in range(0, 12, 3):
        epoch = [row for batch in batches[start : start + 3] for row in batch]
        assert len(set(epoch)) == 9
    assert batches[:3] != batches[3:6]
    assert [[value - 100 for value in batch] for batch in rows("text")] == batches


def test_a_resumed_order_is_the_rest_of_the_unbroken_one():
    assert rows(first_epoch=2) == rows()[6:]
    assert rows(seed=1) != rows()


def test_fewer_pairs_than_a_batch_are_one_batch():
    assert steps_per_epoch(10, 128) == 1
    assert [sorted(batch) for batch in rows(batch_size=128, last_epoch=1)] == [list(range(10))]


def test_targets_go_with_their_pairs():
    columns = {"image": IMAGE, "text": TEXT, "image_target": IMAGE + 0.5, "text_target": TEXT + 0.5}
    for batch in training_batches(columns, 3, 0, 0, 2):
        np.testing.assert_array_equal(batch["image_target"], batch["image"] + 0.5)
        np.testing.assert_array_equal(batch["text_target"], batch["text"] + 0.5)


def test_stored_rows_give_the_batches_of_arrays(tmp_path):
    columns = {"image": IMAGE, "text": np.hstack([TEXT, -TEXT])}
    stored = store_rows(tmp_path / "rows", [columns])
    assert training_batches(stored, 3, 0, 0, 2).element_spec == training_batches(columns, 3, 0, 0, 2).element_spec
    batches = zip(training_batches(columns, 3, 0, 0, 2), training_batches(stored, 3, 0, 0, 2), strict=True)
    for expected, found in batches:
        for name in columns:
            np.testing.assert_array_equal(expected[name], found[name])
