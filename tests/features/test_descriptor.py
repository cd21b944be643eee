import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.features import DESCRIPTOR_DIM, describe_pictures

# Blocks in their order: edges on grids of 4x4, 2x2 and 1x1 cells, then colours on 2x2 and 1x1.
EDGES_4, EDGES_1 = slice(0, 192), slice(240, 252)
COLOURS_2, COLOURS_1 = slice(252, 508), slice(508, 572)


def drawing(size: int) -> np.ndarray:
    """A disc off the centre and a slanted stripe, smooth at the edges, float [1, size, size, 3]."""
    y, x = np.mgrid[0:size, 0:size] / size + 0.5 / size
    disc = 1 / (1 + np.exp(60 * (np.hypot(x - 0.35, y - 0.4) - 0.2)))
    stripe = 1 / (1 + np.exp(60 * (np.abs(x + 0.5 * y - 1.0) - 0.08)))
    return np.stack([1 - disc, 1 - stripe, 1 - 0.5 * disc], axis=-1)[np.newaxis].astype(np.float32)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sum(a * b) / np.linalg.norm(a) / np.linalg.norm(b))


def test_shape_type_and_block_lengths() -> None:
    rows = describe_pictures(np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), np.uint8)).numpy()
    assert rows.shape == (3, DESCRIPTOR_DIM) == (3, 572)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows[:, COLOURS_1], axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(rows[:, COLOURS_2], axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(rows[:, EDGES_1], axis=1), 1, atol=0.01)
    np.testing.assert_allclose(np.linalg.norm(rows[:, EDGES_4], axis=1), 1, atol=0.01)


@pytest.mark.parametrize(
    ("colour", "bins"),
    [
        ((0, 0, 0), {0: 1.0}),
        ((255, 255, 255), {63: 1.0}),
        ((255, 0, 0), {48: 1.0}),
        ((0, 0, 255), {3: 1.0}),
        # 42.5 is half way between levels 0 and 85: 42/85 and 43/85 of a pixel each.
        ((0, 42, 0), {0: np.sqrt(43 / 85), 4: np.sqrt(42 / 85)}),
    ],
)
def test_a_picture_of_one_colour_has_no_edges_and_known_colour_bins(
    colour: tuple[int, int, int], bins: dict[int, float]
) -> None:
    picture = np.broadcast_to(np.array(colour, np.uint8), (1, 16, 16, 3))
    row = describe_pictures(picture).numpy()[0]
    expected = np.zeros(64)
    for position, value in bins.items():
        expected[position] = value
    np.testing.assert_array_equal(row[:252], 0)
    np.testing.assert_allclose(row[COLOURS_1], expected, atol=1e-3)
    np.testing.assert_allclose(row[COLOURS_2], np.tile(expected / 2, 4), atol=1e-3)


def test_colours_stand_in_the_cell_where_they_are() -> None:
    picture = np.zeros((1, 64, 64, 3), np.uint8)
    picture[0, :32, 32:, 0] = 255
    cells = describe_pictures(picture).numpy()[0, COLOURS_2].reshape(2, 2, 64)
    # Black is bin 0 and red bin 48; each of the four cells holds a quarter of the block.
    assert np.argmax(cells, axis=-1).tolist() == [[0, 48], [0, 0]]
    np.testing.assert_allclose(cells.max(axis=-1), 0.5, atol=1e-5)


@pytest.mark.parametrize(("horizontal", "vertical", "direction"), [(1, 0, 0), (0, 1, 6), (1, 1, 3), (-1, 1, 9)])
def test_a_ramp_has_the_direction_of_its_gradient(horizontal: int, vertical: int, direction: int) -> None:
    y, x = np.mgrid[0:64, 0:64] / 256
    ramp = np.repeat((0.5 + horizontal * x + vertical * y)[np.newaxis, ..., np.newaxis], 3, axis=-1)
    edges = describe_pictures(np.clip(ramp, 0, 1)).numpy()[0, EDGES_1]
    assert np.argmax(edges) == direction
    # The border rows lack one of the two differences; everything else is in one direction.
    assert edges[direction] ** 2 > 0.9 * np.sum(edges**2)


def test_opposite_gradients_are_one_direction() -> None:
    rows = describe_pictures(np.concatenate([drawing(64), 1 - drawing(64)])).numpy()
    np.testing.assert_allclose(rows[0, :252], rows[1, :252], atol=1e-4)


def test_size_hardly_matters() -> None:
    small, middle, large = (describe_pictures(drawing(size)).numpy() for size in (48, 64, 200))
    assert cosine(small, middle) > 0.99
    assert cosine(middle, large) > 0.99


def test_bytes_and_floats_agree() -> None:
    picture = drawing(64)
    as_bytes = np.round(picture * 255).astype(np.uint8)
    np.testing.assert_allclose(describe_pictures(as_bytes), describe_pictures(as_bytes / 255), atol=1e-5)


def test_values_beyond_the_range_are_clipped() -> None:
    picture = drawing(100)
    np.testing.assert_allclose(
        describe_pictures(picture * 4 - 2), describe_pictures(np.clip(picture * 4 - 2, 0, 1)), atol=1e-5
    )


def test_flips_differ_in_place_but_not_in_colour() -> None:
    picture = drawing(64)
    rows = describe_pictures(np.concatenate([picture, picture[:, :, ::-1], picture[:, ::-1]])).numpy()
    for flipped in rows[1:]:
        assert cosine(rows[0, EDGES_4], flipped[EDGES_4]) < 0.9
        assert cosine(rows[0, COLOURS_2], flipped[COLOURS_2]) < 0.99
        np.testing.assert_allclose(rows[0, COLOURS_1], flipped[COLOURS_1], atol=1e-4)


def test_a_mirrored_picture_has_mirrored_directions_and_cells() -> None:
    rows = describe_pictures(np.concatenate([drawing(64), drawing(64)[:, :, ::-1]])).numpy()
    cells = rows[:, EDGES_4].reshape(2, 4, 4, 12)
    mirrored = cells[0, :, ::-1, (-np.arange(12)) % 12].transpose(1, 2, 0)
    np.testing.assert_allclose(cells[1], mirrored, atol=1e-4)


def test_rows_do_not_depend_on_their_batch() -> None:
    pictures = np.random.default_rng(0).random((5, 32, 32, 3), np.float32)
    np.testing.assert_allclose(describe_pictures(pictures)[3:4], describe_pictures(pictures[3:4]), atol=1e-6)
    assert describe_pictures(pictures[:0]).shape == (0, DESCRIPTOR_DIM)


def test_noise_too_faint_to_see_makes_no_edges() -> None:
    noise = 0.5 + 1e-6 * np.random.default_rng(0).standard_normal((1, 64, 64, 3))
    assert np.linalg.norm(describe_pictures(noise)[0, EDGES_1]) < 0.1


def test_a_graph_of_unknown_sizes_gives_the_same() -> None:
    graph = tf.function(
        describe_pictures, input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8)], autograph=False
    )
    assert graph.get_concrete_function().structured_outputs.shape.as_list() == [None, DESCRIPTOR_DIM]
    picture = np.random.default_rng(0).integers(0, 256, (2, 40, 30, 3), np.uint8)
    np.testing.assert_allclose(graph(picture), describe_pictures(picture), atol=1e-5)


def test_bad_pictures() -> None:
    with pytest.raises(ValueError, match=r"`pictures` must have shape \[B, H, W, 3\]\. Received: .*\(4, 4, 3\)"):
        describe_pictures(np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(ValueError, match=r"`pictures` must have shape \[B, H, W, 3\]\. Received: .*4\)"):
        describe_pictures(np.zeros((1, 4, 4, 4), np.uint8))
    with pytest.raises(TypeError, match=r"`pictures` must be integers or floats\. Received: .*dtype=bool"):
        describe_pictures(np.zeros((1, 4, 4, 3), bool))
