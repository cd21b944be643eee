import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.features.bag_of_words import BagOfWords
from cmimh_tf.features.descriptor import DESCRIPTOR_DIM, describe_pictures
from cmimh_tf.models.cmimh import CMIMH
from serving.export import export_model
from serving.preprocessing import PictureAndCaptionPreprocessing
from serving.server.model_store import ModelStore
from serving.server.running import Addresses, running_server
from serving.server.settings import Settings

CAPTIONS = ["a red cat", "a blue dog", "the dog and the cat", "red birds", "a bird on a tree"]


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


def make_model(text_units: int, seed: int = 0) -> CMIMH:
    import dataclasses

    model = CMIMH(dataclasses.replace(get_preset("smoke"), seed=seed), DESCRIPTOR_DIM, text_units)
    rng = np.random.default_rng(seed)
    model.adapt(rng.random((50, DESCRIPTOR_DIM)), rng.random((50, text_units)))
    return model


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Exported:
    bag_of_words = BagOfWords.fit(CAPTIONS, unit_length=True, unknown_column=True)
    model = make_model(bag_of_words.dim)
    base = tmp_path_factory.mktemp("serving_model") / "cmimh"
    preprocessing = PictureAndCaptionPreprocessing(bag_of_words)
    export_model(
        model, base / "1", preprocessing=preprocessing, extra_assets={"metrics.json": "{}"}, warmup_batch_sizes=(1, 2)
    )
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


@contextlib.contextmanager
def _serve(settings: Settings) -> Iterator[Addresses]:
    started: list[Addresses | BaseException] = []
    ready, loops, stops = threading.Event(), [], []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        stops.append(asyncio.Event())
        async with running_server(settings) as addresses:
            started.append(addresses)
            ready.set()
            await stops[0].wait()

    def target() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            started.append(error)
            ready.set()

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    assert ready.wait(120)
    if isinstance(started[0], BaseException):
        raise started[0]
    try:
        yield started[0]
    finally:
        loops[0].call_soon_threadsafe(stops[0].set)
        thread.join(60)
        assert not thread.is_alive()
        assert len(started) == 1, started


@pytest.fixture(scope="session")
def server(exported) -> Iterator[Addresses]:
    settings = Settings(model_base=exported.base, rest_port=0, grpc_port=0, poll_seconds=0.2, shutdown_timeout=5)
    with _serve(settings) as addresses:
        yield addresses
