import numpy as np

from cmimh_tf.training.batches import steps_per_epoch, training_batches
from cmimh_tf.training.neighbourhood import Neighbourhood

IMAGE = np.arange(10, dtype=np.float32)[:, None]
TEXT = 100 + np.arange(10, dtype=np.float32)[:, None]


def rows(name="image", **options):
    arguments = {"batch_size": 3, "seed": 0, "first_epoch": 0, "last_epoch": 4, **options}
    return [batch[name].numpy()[:, 0].tolist() for batch in training_batches(IMAGE, TEXT, **arguments)]


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


def test_swaps_take_the_text_and_its_target_from_a_neighbour():
    neighbours = np.stack([(np.arange(10) + 1) % 10, (np.arange(10) + 2) % 10], axis=1).astype(np.int32)
    neighbourhood = Neighbourhood(neighbours, IMAGE + 0.5, TEXT + 0.5)
    seen = []
    for batch in training_batches(IMAGE, TEXT, 10, 0, 0, 50, neighbourhood, swap_share=0.4):
        np.testing.assert_array_equal(batch["image_target"], batch["image"] + 0.5)
        np.testing.assert_array_equal(batch["text_target"], batch["text"] + 0.5)
        seen.append((batch["text"] - 100 - batch["image"]).numpy()[:, 0] % 10)
    offsets = np.concatenate(seen)
    assert set(offsets) == {0.0, 1.0, 2.0}
    # 500 draws: a share of 0.4 within four standard errors, and both neighbours alike.
    assert abs((offsets > 0).mean() - 0.4) < 4 * np.sqrt(0.24 / 500)
    assert abs((offsets == 1).sum() - (offsets == 2).sum()) < 4 * np.sqrt(200)
