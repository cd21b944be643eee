import threading
import time

import pytest

from serving.errors import ServingError
from serving.server.model_store import ModelStore
from serving.server.settings import Settings


class FakeServable:
    def __init__(self, name, version, folder):
        if (folder / "broken").exists():
            raise ValueError("broken on purpose")
        self.name, self.version, self.uses, self.closed = name, version, 0, False

    def close(self):
        assert not self.uses
        self.closed = True


def add_version(base, number, *, broken=False):
    folder = base / str(number)
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"x")
    if broken:
        (folder / "broken").touch()
    return folder


@pytest.fixture
def base(tmp_path):
    return tmp_path / "cmimh"


def make_store(base, policy="", labels=""):
    if not policy and not labels:
        return ModelStore(Settings(model_base=base, request_timeout=60), FakeServable)
    config = base.parent / "models.config"
    config.write_text(
        f"model_config_list {{ config {{ name: 'cmimh' base_path: 'cmimh' model_platform: 'tensorflow' "
        f"model_version_policy {{ {policy} }} {labels} }} }}"
    )
    return ModelStore(Settings(model_config_file=config, request_timeout=60), FakeServable)


def states(store):
    return {version: status.state for version, status in store.statuses("cmimh").items()}


def test_latest_takes_over_and_the_old_version_goes(base):
    add_version(base, 1)
    store = make_store(base)
    store.poll()
    with store.acquire("cmimh") as old:
        assert old.version == 1
    add_version(base, 2)
    (base / "not_a_version").mkdir()
    store.poll()
    with store.acquire("cmimh") as new:
        assert new.version == 2
    assert old.closed
    assert states(store) == {2: "AVAILABLE", 1: "END"}


def test_a_broken_version_leaves_the_old_one_and_is_tried_again_when_it_changes(base):
    add_version(base, 1)
    store = make_store(base)
    store.poll()
    folder = add_version(base, 2, broken=True)
    store.poll()
    store.poll()
    with store.acquire("cmimh") as servable:
        assert servable.version == 1
    status = store.statuses("cmimh", 2)[2]
    assert (status.state, status.error_code, status.error_message) == (
        "END", "INTERNAL", "ValueError: broken on purpose",
    )  # fmt: skip
    assert store.is_ready()
    (folder / "broken").unlink()
    store.poll()
    assert states(store) == {2: "AVAILABLE", 1: "END"}


def test_the_old_version_drains_before_it_is_closed(base):
    add_version(base, 1)
    store = make_store(base)
    store.poll()
    with store.acquire("cmimh") as old:
        add_version(base, 2)
        poller = threading.Thread(target=store.poll)
        poller.start()
        deadline = time.monotonic() + 60
        while states(store)[1] != "UNLOADING":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # New requests go to the new version while the old request goes on.
        with store.acquire("cmimh") as new:
            assert new.version == 2
        assert not old.closed
    poller.join(120)
    assert old.closed
    assert states(store) == {2: "AVAILABLE", 1: "END"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest { num_versions: 2 }", [2, 3]),
        ("all {}", [1, 2, 3]),
        ("specific { versions: 1 versions: 3 versions: 9 }", [1, 3]),
        ("", [3]),
    ],
)
def test_policies(base, policy, expected):
    for number in (1, 2, 3):
        add_version(base, number)
    store = make_store(base, policy, "version_labels { key: 'stable' value: 1 }")
    store.poll()
    assert sorted(states(store)) == expected


def test_labels_move_with_the_configuration_file(base):
    add_version(base, 1)
    add_version(base, 2)
    store = make_store(base, "all {}", "version_labels { key: 'stable' value: 1 }")
    store.poll()
    with store.acquire("cmimh", label="stable") as servable:
        assert servable.version == 1
    config = base.parent / "models.config"
    config.write_text(config.read_text().replace("value: 1", "value: 2"))
    store.poll()
    with store.acquire("cmimh", label="stable") as servable:
        assert servable.version == 2
    config.write_text("nonsense {")
    store.poll()
    with store.acquire("cmimh", label="stable") as servable:
        assert servable.version == 2


def test_what_is_not_there(base):
    store = make_store(base, "all {}", "version_labels { key: 'canary' value: 7 }")
    store.poll()
    assert not store.is_ready()
    add_version(base, 1)
    store.poll()
    for arguments, code, message in [
        ({"name": "other"}, "NOT_FOUND", "Servable not found for request: Latest(other)"),
        ({"name": "cmimh", "version": 5}, "NOT_FOUND", "Servable not found for request: Specific(cmimh, 5)"),
        ({"name": "cmimh", "label": "canary"}, "NOT_FOUND", "Servable not found for request: Specific(cmimh, 7)"),
        ({"name": "cmimh", "label": "x"}, "INVALID_ARGUMENT", "Unrecognized servable version label: x"),
    ]:
        with pytest.raises(ServingError) as caught, store.acquire(**arguments):
            pass
        assert (caught.value.code, caught.value.message) == (code, message)
    with pytest.raises(ServingError, match="Could not find any versions of model other"):
        store.statuses("other")
    with pytest.raises(ServingError, match="Could not find version 5 of model cmimh"):
        store.statuses("cmimh", 5)


def test_a_model_that_left_the_configuration_is_unloaded(base):
    add_version(base, 1)
    store = make_store(base, "all {}")
    store.poll()
    config = base.parent / "models.config"
    config.write_text(config.read_text().replace("name: 'cmimh'", "name: 'renamed'"))
    store.poll()
    with store.acquire("renamed") as servable:
        assert servable.version == 1
    with pytest.raises(ServingError, match="Servable not found"), store.acquire("cmimh"):
        pass
