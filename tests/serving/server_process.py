"""A tiny model with pictures and captions, and `python -m serving.server` as a process."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from cmimh_tf.config import get_preset
from cmimh_tf.features.bag_of_words import BagOfWords
from cmimh_tf.features.descriptor import DESCRIPTOR_DIM
from cmimh_tf.model import CMIMH
from serving.export import export_model
from serving.preprocessing import PictureAndCaptionPreprocessing

ROOT = Path(__file__).resolve().parents[2]
STARTUP_SECONDS, STOP_SECONDS = 300, 120
CAPTIONS = ["a red cat", "a blue dog", "the dog and the cat", "red birds", "a bird on a tree"]


def make_model(image_units: int, text_units: int, seed: int = 0) -> CMIMH:
    """A model with random weights."""
    config = dataclasses.replace(get_preset("smoke"), seed=seed)
    model = CMIMH(config=config, image_units=image_units, text_units=text_units)
    rng = np.random.default_rng(seed)
    model.adapt(rng.random((50, image_units)), rng.random((50, text_units)))
    return model


def export_small_model(folder: Path) -> tuple[CMIMH, BagOfWords]:
    """Exports a model that accepts vectors, pictures and captions."""
    bag_of_words = BagOfWords.fit(CAPTIONS, unit_length=True, unknown_column=True)
    model = make_model(DESCRIPTOR_DIM, bag_of_words.dim)
    export_model(
        model,
        folder,
        preprocessing=PictureAndCaptionPreprocessing(bag_of_words),
        extra_assets={"metrics.json": "{}"},
        warmup_batch_sizes=(1, 2),
    )
    return model, bag_of_words


class ServerProcess:
    """`python -m serving.server` on free ports.

    Args:
        base: the folder of the versions.
        flags: further flags.

    Attributes:
        process: the process.
        port, grpc_port: of its interfaces.
        log: its lines so far.
    """

    def __init__(self, base: Path, *flags: str):
        command = [sys.executable, "-m", "serving.server", "--model-base", str(base)]
        self.process = subprocess.Popen(
            [*command, "--rest-port", "0", "--grpc-port", "-1", "--poll-seconds", "0.1", *flags],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        timer = threading.Timer(STARTUP_SECONDS, self.process.kill)
        timer.start()
        self.log: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if '"listening"' in line:
                self.port, self.grpc_port = (json.loads(line)[key] for key in ("rest_port", "grpc_port"))
                break
        timer.cancel()
        # The pipe must be emptied, or the server would block.
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self._reader.start()

    def wait(self) -> int:
        """Waits for the end of the process; returns its exit code."""
        code = self.process.wait(STOP_SECONDS)
        self._reader.join(STOP_SECONDS)
        return code

    def stop(self) -> int:
        """Ends the process with SIGTERM; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Ends the process at once, if it still runs."""
        self.process.kill()
        self.process.wait()
        self._reader.join(STOP_SECONDS)
        if self.process.stderr is not None:
            self.process.stderr.close()
