"""The index of a pushed version: complete, published once, and only for a model that was pushed."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tfx.types import standard_artifacts

from cmimh_tf import open_index
from cmimh_tf.search.adapters import DataSource
from cmimh_tf.search.engines.interface import ModelStamp
from cmimh_tf.search.models import ModelDescription
from pipeline.components import index_builder
from pipeline.components.index_builder import SearchIndex, publish, search_command


def described(fingerprint="0123456789abcdef", takes_raw=("image", "text")):
    stamp = ModelStamp(fingerprint, "models/1", 1)
    return ModelDescription(stamp, Path("models/1"), 16, {"image": 3, "text": 2}, takes_raw)


@pytest.fixture
def source(tmp_path):
    for name in "abc":
        Image.new("RGB", (2, 2)).save(tmp_path / f"{name}.png")
    (tmp_path / "pairs.csv").write_text(
        "id,image,text,labels,year\nx,a.png,a cat,cat|pet,2001\ny,b.png,a dog,dog|pet,2002\nz,c.png,oak,plant,2003\n"
    )
    return DataSource(str(tmp_path / "pairs.csv"))


def codes():
    """By id, and not in the order of the data."""
    return {name: (np.full(2, number, np.uint8), np.full(2, 7 * number, np.uint8)) for number, name in enumerate("zyx")}


def refused():
    raise AssertionError("the pairs are not hashed again")


def test_items_have_the_codes_of_their_ids_and_what_the_data_hold(source, tmp_path):
    assert publish(tmp_path / "index" / "1", described(), source, codes) == tmp_path / "index" / "1"
    with open_index(tmp_path / "index") as index:
        (item,) = index.get(["x"])
        assert item.codes == {"image": bytes([2, 2]), "text": bytes([14, 14])}
        assert (item.caption, item.picture) == ("a cat", str(tmp_path / "a.png"))
        assert item.metadata == {"label": ["cat", "pet"], "year": 2001}
        assert len(index) == 3
        assert index.header.model == described().stamp
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["1"]


def test_the_same_model_and_data_are_published_once(source, tmp_path):
    folder = publish(tmp_path / "1", described(), source, codes)
    publish(folder, described(), source, refused)
    publish(folder, described("fedcba9876543210"), source, codes)
    with open_index(folder) as index:
        assert index.header.model.fingerprint == "fedcba9876543210"
    (tmp_path / "pairs.csv").write_text("id,image,text\nz,c.png,a bush\n")
    publish(folder, described("fedcba9876543210"), DataSource(source.spec), codes)
    with open_index(folder) as index:
        assert [item.caption for item in index.sample(10)] == ["a bush"]


def test_a_killed_build_publishes_nothing(source, tmp_path):
    def incomplete():
        return {"x": codes()["x"]}

    with pytest.raises(KeyError):
        publish(tmp_path / "index" / "1", described(), source, incomplete)
    assert not (tmp_path / "index" / "1").exists()
    publish(tmp_path / "index" / "1", described(), source, codes)
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["1"]


def test_no_index_without_a_pushed_model(tmp_path, monkeypatch):
    monkeypatch.setattr(index_builder, "publish", refused)
    pushed, index = standard_artifacts.PushedModel(), SearchIndex()
    pushed.set_int_custom_property("pushed", 0)
    build = index_builder.IndexBuilder.EXECUTOR_SPEC.executor_class._FUNCTION
    unused = standard_artifacts.Examples()
    build(unused, unused, unused, pushed, index, "pairs.csv", str(tmp_path / "index"))
    assert index.get_string_custom_property("address") == ""
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("takes_raw", "query"), [(("image", "text"), "--text 'a cat'"), ((), "--id x")], ids=["captions", "vectors"]
)
def test_the_printed_command_uses_a_query_that_the_model_takes(source, tmp_path, monkeypatch, takes_raw, query):
    publish(tmp_path / "my index" / "1", described(), source, codes)
    monkeypatch.setattr(index_builder, "describe_model", lambda path: described(takes_raw=takes_raw))
    monkeypatch.chdir(tmp_path)
    assert search_command("my index") == f"python -m cmimh_tf.search --index 'my index' {query}"
