"""New data against a model's training: data like those of training pass, everything else is reported in words."""

import json
import re

import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data.__main__ import run_check
from cmimh_tf.data.npz import save_npz
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.data.sources import open_records
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.drift import check_drift
from cmimh_tf.files import write_json
from cmimh_tf.metrics.code_profile import PROFILE_FILE, compare_profiles, pairs_are_strangers, profile_codes
from cmimh_tf.model import CMIMH
from cmimh_tf.training.evaluation import profile_pairs
from cmimh_tf.training.run_folder import RunFolder
from serving.export import export_model

ROWS = 600


@pytest.fixture(scope="module")
def data():
    return make_synthetic(3 * ROWS, seed=0)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A model trained for a few epochs, with the profile of held-out pairs, and its export."""
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    model = CMIMH(config=get_preset("smoke"), image_units=data.image.shape[1], text_units=data.text.shape[1])
    model.adapt(data.image, data.text)
    model.compile()
    model.fit({"image": data.image[:ROWS], "text": data.text[:ROWS]}, epochs=8, verbose=0)
    folder.save_model(model)
    write_json(folder.profile, profile_pairs(model, data.take(np.arange(ROWS, 2 * ROWS))))
    export_model(model, folder.path / "export", extra_assets={PROFILE_FILE: folder.profile.read_text()})
    return folder.path


def held_out(data):
    part = data.take(np.arange(2 * ROWS, 3 * ROWS))
    return part.image, part.text


def drift(run, tmp_path, image, text):
    save_npz(tmp_path / "new.npz", PairedData(image, text))
    return check_drift(open_records(str(tmp_path / "new.npz")), run)


@pytest.mark.parametrize("model", [".", "export"])
def test_data_like_those_of_training_fit(data, run, tmp_path, model):
    check = drift(run / model, tmp_path, *held_out(data))
    assert check.fits
    assert not any(one.differs for one in check.comparisons)
    assert check.to_lines()[-1] == "the data fit the model"


def test_a_run_and_its_export_see_the_same(data, run, tmp_path):
    first, second = (drift(run / model, tmp_path, *held_out(data)).comparisons for model in (".", "export"))
    for one, other in zip(first, second, strict=True):
        assert one.sentence == other.sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda image, text: (image, text[::-1]), "the pairs do not belong together"),
        (lambda image, text: (image[:, :-1], text), "`image` must be a vector of width .* Were other features used"),
        (lambda image, text: (3 * image, text), "the image inputs are .* times as long as in training"),
        (lambda image, text: (image, np.repeat(text[:1], len(text), 0)), "captions hardly differ from each other"),
        (lambda image, text: (image[:30], text[:30]), "at least 50 pairs are needed .* Received: 30"),
    ],
)
def test_other_data_are_reported_in_words(data, run, tmp_path, change, words):
    check = drift(run, tmp_path, *change(*held_out(data)))
    assert not check.fits
    assert any(re.search(words, problem) for problem in check.problems), check.problems
    json.dumps(check.to_json(), allow_nan=False)


def test_raw_pairs_need_a_model_that_takes_them(run, tmp_path):
    check = check_drift(open_records("emoji"), run / "export")
    assert "the model takes image vectors of width" in check.problems[0]
    assert "Compute the vectors first" in check.problems[0]


def test_a_model_without_a_profile_says_what_to_do(data, run, tmp_path):
    (tmp_path / "model.keras").write_bytes((run / "model.keras").read_bytes())
    with pytest.raises(FileNotFoundError, match=r"code_profile.json is missing: .* Run its training command again"):
        drift(tmp_path, tmp_path, *held_out(data))
    write_json(tmp_path / PROFILE_FILE, {"rows": 3, "code_length": 8})
    with pytest.raises(ValueError, match=r"must be the profile of .* codes of 8 bits"):
        drift(tmp_path, tmp_path, *held_out(data))


def test_command_has_the_verdict_as_its_status(data, run, tmp_path, capsys):
    from argparse import Namespace

    image, text = held_out(data)
    for name, change, status in (("same", 1, 0), ("other", 5, 1)):
        path = tmp_path / f"{name}.npz"
        save_npz(path, PairedData(change * image, text))
        flags = Namespace(path=str(path), model=run, sheet=None, no_sheet=True, seed=0, json=True)
        assert run_check(flags) == status
        assert json.loads(capsys.readouterr().out)["drift"]["fits"] == (status == 0)


def noise(rows, seed, shift=0.0):
    generator = np.random.default_rng(seed)
    common = generator.standard_normal((rows, 16))
    inputs = {"image": common + shift, "text": common + 0.3 * generator.standard_normal((rows, 16))}
    return inputs, {name: 1 / (1 + np.exp(-4 * values)) for name, values in inputs.items()}


def test_profile_by_hand():
    inputs = {"image": np.tile([[3.0, 4.0]], (100, 1)), "text": np.tile([[0.0, 1.0]], (100, 1))}
    probs = {"image": np.tile([[0.52] + [1.0] * 7], (100, 1)), "text": np.tile([[0.3] + [1.0] * 7], (100, 1))}
    profile = profile_codes(inputs, probs)
    assert profile["rows"] == 100
    assert profile["image"]["norm"] == {"mean": 5.0, "deviation": 0.0, "count": 100}
    assert profile["image"]["ones"] == [100] * 8
    assert profile["text"]["ones"] == [0] + [100] * 7
    assert profile["image"]["undecided"]["mean"] == pytest.approx(1 / 8)
    assert profile["image"]["shared_codes"] == {"mean": 1.0, "deviation": 0.0, "count": 2}
    assert profile["pair_distance"]["mean"] == profile["stranger_distance"]["mean"] == pytest.approx(1 / 8)
    assert pairs_are_strangers(profile)


def test_sample_is_bounded_and_seeded():
    inputs, probs = noise(3_000, 0)
    first, again, other = (profile_codes(inputs, probs, seed) for seed in (0, 0, 1))
    assert first["rows"] == 2_000
    assert first == again
    assert first["image"]["ones"] != other["image"]["ones"]


def test_false_alarms_are_rare_and_differences_are_seen():
    profiles = [profile_codes(*noise(300, seed)) for seed in range(12)]
    pairs = [(left, right) for left in profiles for right in profiles if left is not right]
    assert not any(one.differs for pair in pairs for one in compare_profiles(*pair))
    moved = compare_profiles(profiles[0], profile_codes(*noise(300, 99, shift=0.7)))
    assert {(one.kind, one.modality) for one in moved if one.differs} >= {("bits", "image"), ("norm", "image")}
    assert not any(one.differs for one in moved if one.modality == "text")


def test_too_few_rows_or_other_bits_are_refused():
    profile, few = profile_codes(*noise(100, 0)), profile_codes(*noise(40, 0))
    with pytest.raises(ValueError, match=r"`new` must have at least 50 rows. Received: 40"):
        compare_profiles(profile, few)
    with pytest.raises(ValueError, match=r"must be profiles of the same model. Received: codes of 16 and 8 bits"):
        compare_profiles(profile, {**profile, "code_length": 8})
    one_group = compare_profiles(profile, profile_codes(*noise(60, 0)))
    assert [one.kind for one in one_group if one.p_value is None] == ["shared_codes", "shared_codes", "neighbour_map"]
