"""A picture as a vector without learned weights: histograms of edge directions and of colours.

Edges (after Dalal and Triggs, "Histograms of oriented gradients for human detection", CVPR 2005): at each pixel, the
gradient magnitude of the strongest channel is distributed over the two nearest of 12 directions, where opposite
directions are equal, and averaged over the cells of a 4x4, a 2x2 and a 1x1 grid. Colours: each pixel is distributed
over the nearest of 4x4x4 points of the RGB cube, and averaged over a 2x2 and a 1x1 grid. Each grid gives one block h.
The blocks are concatenated in this order, each as

    sqrt(h / (sum(h) + epsilon))

The inner product of two such blocks is the Bhattacharyya coefficient of their histograms (Arandjelovic and Zisserman,
"Three things everyone should know to improve object retrieval", CVPR 2012), so linear methods work well on them.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

PICTURE_SIZE = 64
_NUM_DIRECTIONS = 12
_EDGE_GRIDS = (4, 2, 1)
_NUM_LEVELS = 4
_COLOUR_GRIDS = (2, 1)
# Halves the edges of a picture with this mean gradient magnitude (of values from 0 to 1): faint noise is not an edge.
_EDGE_EPSILON = 1e-3

DESCRIPTOR_DIM = _NUM_DIRECTIONS * sum(grid**2 for grid in _EDGE_GRIDS) + _NUM_LEVELS**3 * sum(
    grid**2 for grid in _COLOUR_GRIDS
)


def describe_pictures(pictures: Any) -> tf.Tensor:
    """Descriptors of pictures of any size, in graph or eager mode. Pictures are first resized, not cropped, to 64x64.

    Args:
        pictures: [B, H, W, 3] RGB: integers from 0 to 255, or floats from 0 to 1 (values beyond are clipped).

    Returns:
        float32 [B, DESCRIPTOR_DIM], values from 0 to 1; no row is all zero. Colour blocks have length 1. Edge blocks
        have length at most 1, and 0 for a picture of one colour.

    Raises:
        TypeError: if the values are neither integers nor floats.
        ValueError: if the shape is wrong.
    """
    pictures = tf.convert_to_tensor(pictures)
    if not (pictures.dtype.is_integer or pictures.dtype.is_floating):
        raise TypeError(f"`pictures` must be integers or floats. Received: pictures.dtype={pictures.dtype.name}.")
    if pictures.shape.rank != 4 or pictures.shape[-1] != 3:
        raise ValueError(f"`pictures` must have shape [B, H, W, 3]. Received: pictures.shape={pictures.shape}.")
    scale = 255.0 if pictures.dtype.is_integer else 1.0
    values = tf.clip_by_value(tf.cast(pictures, tf.float32) / scale, 0.0, 1.0)
    # With antialiasing, the descriptor hardly depends on the size of a picture.
    values = tf.image.resize(values, [PICTURE_SIZE, PICTURE_SIZE], antialias=True)
    blocks = [_root_block(cells, _EDGE_EPSILON) for cells in _edge_histograms(values)]
    blocks += [_root_block(cells, 0.0) for cells in _colour_histograms(values)]
    return tf.concat(blocks, axis=-1)


def _edge_histograms(values: tf.Tensor) -> list[tf.Tensor]:
    """Edge directions of [B, S, S, 3]: [B, grid, grid, 12] for each grid, means over a cell's pixels."""
    across = tf.pad(values[:, :, 2:] - values[:, :, :-2], [[0, 0], [0, 0], [1, 1], [0, 0]]) / 2
    down = tf.pad(values[:, 2:] - values[:, :-2], [[0, 0], [1, 1], [0, 0], [0, 0]]) / 2
    squares = across**2 + down**2
    strongest = tf.one_hot(tf.argmax(squares, axis=-1), 3)
    across, down = tf.reduce_sum(across * strongest, axis=-1), tf.reduce_sum(down * strongest, axis=-1)
    length = tf.sqrt(tf.reduce_max(squares, axis=-1, keepdims=True))
    # In units of the distance between two directions; floormod makes opposite directions equal.
    angle = tf.math.floormod(tf.atan2(down, across), math.pi) * (_NUM_DIRECTIONS / math.pi)
    offset = tf.abs(angle[..., tf.newaxis] - tf.range(_NUM_DIRECTIONS, dtype=tf.float32))
    share = tf.nn.relu(1.0 - tf.minimum(offset, _NUM_DIRECTIONS - offset))
    cell_size = PICTURE_SIZE // _EDGE_GRIDS[0]
    finest = tf.nn.avg_pool2d(length * share, cell_size, cell_size, "VALID")
    return _mean_over_grids(finest, _EDGE_GRIDS)


def _colour_histograms(values: tf.Tensor) -> list[tf.Tensor]:
    """Colours of [B, S, S, 3]: [B, grid, grid, 64] for each grid, means over a cell's pixels."""
    cells = _split_into_cells(values, _COLOUR_GRIDS[0])
    levels = tf.range(_NUM_LEVELS, dtype=tf.float32)
    share = tf.nn.relu(1.0 - tf.abs(cells[..., tf.newaxis] * (_NUM_LEVELS - 1) - levels))
    red, green, blue = tf.unstack(share, axis=4)
    num_pixels, grid = cells.shape[3], cells.shape[1]
    red_green = tf.reshape(
        red[..., :, tf.newaxis] * green[..., tf.newaxis, :], [-1, grid, grid, num_pixels, _NUM_LEVELS**2]
    )
    finest = tf.matmul(red_green, blue, transpose_a=True) / num_pixels
    return _mean_over_grids(tf.reshape(finest, [-1, grid, grid, _NUM_LEVELS**3]), _COLOUR_GRIDS)


def _split_into_cells(values: tf.Tensor, grid: int) -> tf.Tensor:
    """[B, S, S, K] as [B, grid, grid, P, K], with the P pixels of each cell together."""
    size, channels = values.shape[1] // grid, values.shape[3]
    rows = tf.reshape(values, [-1, grid, size, grid, size, channels])
    return tf.reshape(tf.transpose(rows, [0, 1, 3, 2, 4, 5]), [-1, grid, grid, size * size, channels])


def _mean_over_grids(finest: tf.Tensor, grids: tuple[int, ...]) -> list[tf.Tensor]:
    """[B, grid, grid, K] for each grid: means over the cells of the next finer grid."""
    blocks = [finest]
    for coarser in grids[1:]:
        step = blocks[-1].shape[1] // coarser
        blocks.append(tf.nn.avg_pool2d(blocks[-1], step, step, "VALID"))
    return blocks


def _root_block(cells: tf.Tensor, epsilon: float) -> tf.Tensor:
    """sqrt(h / (sum(h) + epsilon)) of [B, grid, grid, K] as [B, grid * grid * K]."""
    block = tf.reshape(cells, [-1, math.prod(cells.shape[1:])])
    # `epsilon` refers to the mean over the cells, so that all grids treat a faint picture alike.
    total = tf.reduce_sum(block, axis=-1, keepdims=True) + epsilon * cells.shape[1] ** 2
    return tf.sqrt(tf.math.divide_no_nan(block, total))
