"""Fixtures for tests of readers: small pictures, and a way to list all errors of a source."""

from pathlib import Path

import pytest

import cmimh_tf.data.tfds_builders
from cmimh_tf.data.pairs import DataError

DUMMY_PICTURES = Path(cmimh_tf.data.tfds_builders.__file__).parent / "mirflickr25k" / "dummy_data" / "mirflickr"


@pytest.fixture(scope="session")
def pictures():
    """Three small JPEG pictures."""
    return [(DUMMY_PICTURES / f"im{number}.jpg").read_bytes() for number in (1, 2, 3)]


@pytest.fixture
def picture_folder(tmp_path, pictures):
    """A folder with the pictures a.jpg, b.jpg and c.jpg."""
    for name, picture in zip("abc", pictures, strict=True):
        (tmp_path / f"{name}.jpg").write_bytes(picture)
    return tmp_path


@pytest.fixture
def problems():
    """A function that lists all messages of a source, in order and without repeats."""

    def list_problems(reader):
        index = reader.survey()
        found = list(index.problems)
        for start, stop in index.blocks:
            found += [record for record in reader.scan(start, stop) if isinstance(record, DataError)]
        return list(dict.fromkeys(map(str, found)))

    return list_problems
