import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf.features.bag_of_words import BagOfWords
from cmimh_tf.features.descriptor import DESCRIPTOR_DIM, describe_pictures
from cmimh_tf.model import CMIMH
from serving.server.model_store import ModelStore
from serving.server.running import Addresses, running_server
from serving.server.settings import Settings
from tests.serving.server_process import export_small_model
from tests.serving.service_thread import in_thread


@dataclass(frozen=True)
class Exported:
    """A tiny model with pictures and captions, and where it was exported."""

    model: CMIMH
    base: Path
    bag_of_words: BagOfWords

    def image_rows(self, count: int, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).random((count, DESCRIPTOR_DIM), np.float32)

    def text_rows(self, count: int, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).random((count, self.bag_of_words.dim), np.float32)

    def caption_codes(self, captions: list[str]) -> np.ndarray:
        return self.model.hash_texts(self.bag_of_words(captions).numpy())

    def picture_codes(self, pictures: list[np.ndarray]) -> np.ndarray:
        return self.model.hash_images(np.concatenate([describe_pictures(picture[None]) for picture in pictures]))


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Exported:
    base = tmp_path_factory.mktemp("serving_model") / "cmimh"
    model, bag_of_words = export_small_model(base / "1")
    return Exported(model, base, bag_of_words)


@pytest.fixture(scope="session")
def store(exported) -> Iterator[ModelStore]:
    """The exported model in memory, for a service without sockets."""
    store = ModelStore(Settings(model_base=exported.base))
    store.poll()
    yield store
    store.stop()


@pytest.fixture(scope="session")
def serve():
    """`with serve(settings) as addresses:` runs a server on free ports in a thread of this process."""
    return _serve


def _serve(settings: Settings) -> contextlib.AbstractContextManager[Addresses]:
    return in_thread(lambda: running_server(settings))


@pytest.fixture(scope="session")
def server(exported) -> Iterator[Addresses]:
    settings = Settings(model_base=exported.base, rest_port=0, grpc_port=0, poll_seconds=0.2, shutdown_timeout=5)
    with _serve(settings) as addresses:
        yield addresses
