"""What every baseline owes: the same interface, on all kinds of features, repeatable by its seed."""

import numpy as np
import pytest

from cmimh_tf.baselines import Hasher
from cmimh_tf.baselines.registry import BASELINES, make_baseline
from cmimh_tf.codes import hamming_distance
from cmimh_tf.data.synthetic import make_synthetic

# Settings that are only smaller than those of the result tables.
SMALL = {
    "PDH": {"rounds": 2},
    "CMFH": {"rounds": 20},
    "FSH": {"num_anchors": 50, "rounds": 5},
    "DJSRH": {"hidden_units": 64, "epochs": 10},
    "DGCPN": {"hidden_units": 64, "epochs": 5},
    "CIRH": {"hidden_units": 64, "graph_units": 64, "batch_size": 40, "epochs": 30},
    "UCCH": {"hidden_units": 64, "batch_size": 40, "num_negatives": 100},
}
ALL = pytest.mark.parametrize("name", list(BASELINES))


def make_small(name, code_length=16, seed=0, **options):
    return make_baseline(name, code_length, seed, **{**SMALL.get(name, {}), **options})


@pytest.fixture(scope="module")
def data():
    """As in the Wikipedia benchmark, the texts are narrow: 6 topic shares, which are not negative and sum to 1."""
    wide = make_synthetic(500, seed=0, text_dim=6, private_dim=2)
    shares = np.exp(wide.text)
    shares /= shares.sum(axis=1, keepdims=True)
    return wide.image, shares


def test_names_are_those_of_the_tables():
    assert list(BASELINES) == [
        "CVH", "PDH", "CMFH", "ACQ", "ACQ (tuned ridge)", "FSH", "DJSRH", "DGCPN", "CIRH", "UCCH", "CCA-ITQ", "Random"
    ]  # fmt: skip


def test_unknown_name_lists_those_there_are():
    with pytest.raises(ValueError, match=r"must be one of 'CVH', 'PDH', .*'Random'. Received: name='CCA'"):
        make_baseline("CCA", 16, 0)


def test_options_win_over_the_settings_of_the_tables():
    assert make_baseline("ACQ (tuned ridge)", 16, 0).ridge == "auto"
    assert make_baseline("ACQ (tuned ridge)", 16, 0, ridge=0.5).ridge == 0.5


@ALL
def test_code_longer_than_the_texts_are_wide(name, data):
    image, text = data
    hasher = make_small(name, code_length=32).fit(image[:400], text[:400])
    assert isinstance(hasher, Hasher)
    image_codes, text_codes = hasher.hash_images(image[400:]), hasher.hash_texts(text[400:])
    assert image_codes.shape == text_codes.shape == (100, 4)
    assert image_codes.dtype == text_codes.dtype == np.uint8
    distances = hamming_distance(image_codes, text_codes)
    if name == "Random":
        assert np.diag(distances).mean() == pytest.approx(16, abs=3)
    else:
        assert np.diag(distances).mean() < 0.85 * distances.mean()
    # Near in one view is near in its codes, for the random ones too.
    within = hamming_distance(image_codes, image_codes).astype(float)
    assert np.corrcoef(within.ravel(), _distances(image[400:]).ravel())[0, 1] > 0.3


@ALL
def test_seed_decides_every_random_choice(name, data):
    image, text = (view[:120] for view in data)
    short = {"epochs": 2} if name in ("DJSRH", "DGCPN", "CIRH", "UCCH") else {}
    codes = [make_small(name, seed=seed, **short).fit(image, text).hash_images(image) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(codes[0], codes[1])
    assert (codes[0] != codes[2]).any()


@ALL
def test_wrong_use_is_refused(name, data):
    image, text = data
    hasher = make_small(name)
    with pytest.raises(RuntimeError, match="`fit` must be called before"):
        hasher.hash_images(image)
    with pytest.raises(ValueError, match=r"`image` must have rows that differ. Received: 5 equal rows"):
        hasher.fit(np.ones((5, 3)), text[:5])
    with pytest.raises(ValueError, match="same number of rows, at least 2"):
        hasher.fit(image, text[:-1])
    with pytest.raises(ValueError, match=r"positive multiple of 8. Received: code_length=12"):
        make_small(name, code_length=12)


@ALL
def test_half_precision_and_foreign_widths(name, data):
    image, text = (view[:120].astype(np.float16) for view in data)
    hasher = make_small(name).fit(image, text)
    assert hasher.hash_images(image[:0]).shape == (0, 2)
    with pytest.raises(ValueError, match="`text` must have as many columns as in `fit`, 6"):
        hasher.hash_texts(image)


def _distances(features):
    return np.linalg.norm(features[:, np.newaxis] - features, axis=2)
