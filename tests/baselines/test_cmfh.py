"""CMFH: an objective that never rises, and steps that solve their equations."""

from dataclasses import replace

import numpy as np
import pytest

from cmimh_tf.baselines.cmfh import CMFH, Factorisation


@pytest.fixture
def problem():
    random = np.random.default_rng(0)
    factors = random.standard_normal((60, 3))
    views = tuple(
        factors @ random.standard_normal((3, width)) + random.standard_normal((60, width)) for width in (7, 5)
    )
    return Factorisation(views, (0.3, 0.7), map_weight=2.0, decay=0.1)


# 8 bits are more than either view is wide.
@pytest.mark.parametrize("code_length", [4, 8])
def test_objective_never_rises(problem, code_length):
    state = problem.start(code_length, seed=1)
    values = [problem.objective(state)]
    for _ in range(30):
        state = problem.step(state)
        values.append(problem.objective(state))
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    assert values[-1] < 0.9 * values[0]


def test_objective_is_the_sum_by_hand():
    view = np.array([[1.0], [-1.0]])
    problem = Factorisation((view, 2 * view), (0.25, 0.75), map_weight=3.0, decay=0.5)
    state = replace(problem.start(1, seed=0), shared=view, loadings=([[3.0]], [[1.0]]), maps=([[0.0]], [[1.0]]))
    state = replace(state, loadings=tuple(map(np.array, state.loadings)), maps=tuple(map(np.array, state.maps)))
    reconstruction = 0.25 * 2 * (1 - 3) ** 2 + 0.75 * 2 * (2 - 1) ** 2
    maps = 3 * (2 * (1 - 0) ** 2 + 2 * (1 - 2) ** 2)
    decay = 0.5 * (2 + 9 + 1 + 0 + 1)
    assert problem.objective(state) == pytest.approx(reconstruction + maps + decay)


@pytest.mark.parametrize("name", ["loadings", "maps"])
@pytest.mark.parametrize("view", [0, 1])
def test_no_other_loadings_or_maps_are_better(problem, name, view):
    state = problem.step(problem.start(4, seed=1))
    best = problem.objective(state)
    random = np.random.default_rng(2)
    for size in (1e-3, 0.1):
        matrices = list(getattr(state, name))
        matrices[view] = matrices[view] + size * random.standard_normal(matrices[view].shape)
        assert problem.objective(replace(state, **{name: tuple(matrices)})) > best


def test_step_solves_for_the_shared_factors(problem):
    state = problem.start(4, seed=1)
    shared = problem.step(state).shared
    best = problem.objective(replace(state, shared=shared))
    random = np.random.default_rng(2)
    for size in (1e-3, 0.1):
        moved = shared + size * random.standard_normal(shared.shape)
        assert problem.objective(replace(state, shared=moved)) > best


def test_noiseless_views_of_few_factors_are_mapped_to_equal_codes():
    random = np.random.default_rng(0)
    factors = random.standard_normal((500, 8))
    image, text = factors @ random.standard_normal((8, 12)), factors @ random.standard_normal((8, 10))
    hasher = CMFH(8, decay=1e-6).fit(image[:400], text[:400])
    agree = hasher.hash_images(image[400:]) == hasher.hash_texts(text[400:])
    assert agree.mean() > 0.98


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_weight": 1}, r"`image_weight` must be in \(0, 1\). Received: image_weight=1"),
        ({"map_weight": 0}, r"`map_weight` must be positive. Received: map_weight=0"),
        ({"decay": -1}, r"`decay` must be positive. Received: decay=-1"),
        ({"rounds": 0}, r"`rounds` must be at least 1. Received: rounds=0"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CMFH(8, **options)
