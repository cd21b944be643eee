"""Tar shards are read from front to back: in a gzip file, every step back starts over at its first byte."""

import gzip
import io
import itertools
import json
import tarfile

import numpy as np
import pytest

from cmimh_tf.data.records import open_records

NUM_SAMPLES = 4


def npy(value):
    buffer = io.BytesIO()
    np.save(buffer, np.array([value, 1.0]))
    return buffer.getvalue()


def parts(row):
    about = {"id": f"sample {row}", "labels": ["x"], "caption": "not this one"}
    return {
        "cls": f"class {row}".encode(),
        "image.npy": npy(row),
        "json": json.dumps(about).encode(),
        "text.npy": npy(-row),
        "txt": f"caption {row}".encode(),
    }


@pytest.fixture(params=[False, True], ids=["sorted", "reversed"])
def shard(request, tmp_path):
    """Four samples whose parts stand in order of their names, or the other way round."""
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for row in range(NUM_SAMPLES):
            for extension, content in sorted(parts(row).items(), reverse=request.param):
                member = tarfile.TarInfo(f"{row}.{extension}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return str(tmp_path / "a.tar.gz")


@pytest.fixture
def offsets(monkeypatch):
    """Where a gzip file was asked to go on reading, in order."""
    asked = []
    seek = gzip.GzipFile.seek

    def noting(self, offset, *arguments):
        asked.append(seek(self, offset, *arguments))
        return asked[-1]

    monkeypatch.setattr(gzip.GzipFile, "seek", noting)
    return asked


def steps_back(offsets):
    return sum(after < before for before, after in itertools.pairwise(offsets))


def test_survey_goes_back_only_after_the_table_of_contents(shard, offsets):
    open_records(shard).survey()
    assert len(offsets) > 2 * NUM_SAMPLES
    assert steps_back(offsets) == 1


def test_records_are_read_in_order_of_offset(shard, offsets):
    reader = open_records(shard)
    reader.survey()
    offsets.clear()
    records = list(reader.scan(0, NUM_SAMPLES))
    assert len(offsets) >= 5 * NUM_SAMPLES
    assert steps_back(offsets) == 0
    for row, record in enumerate(records):
        assert (record.id, record.caption) == (f"sample {row}", f"caption {row}")
        assert (record.image.tolist(), record.text.tolist()) == ([row, 1], [-row, 1])
        assert np.flatnonzero(record.labels).tolist() == [row, NUM_SAMPLES]
