"""Tar shards: their pairs, read from front to back, and the sample of each error."""

import gzip
import io
import itertools
import json
import pickle
import tarfile

import numpy as np
import pytest

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.sources import open_records

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


def write_tar(path, files, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return str(path)


def vector_file(values):
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values))
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_tar_shards_give_their_samples(tmp_path, mode, pictures):
    suffix = ".tar.gz" if mode == "w:gz" else ".tar"
    first = {
        "./000.jpg": pictures[0],
        "./000.txt": b"A dog\n",
        "./000.cls": b"dog",
        "./001.json": json.dumps({"caption": "A cat", "labels": ["cat"], "id": "two"}).encode(),
        "./001.jpg": pictures[1],
    }
    second = {"000.image.npy": vector_file([1.0, 2.0]), "000.text.npy": vector_file([3.0])}
    for shard, files in enumerate((first, second)):
        write_tar(tmp_path / f"part-{shard}{suffix}", files, mode)
    reader = pickle.loads(pickle.dumps(open_records(str(tmp_path / "part-*"))))
    records = list(reader)
    assert reader.index().classes == ["cat", "dog"]
    assert [record.id for record in records] == ["part-0/000", "two", "part-1/000"]
    assert [record.caption for record in records] == ["A dog", "A cat", None]
    assert [record.image_bytes for record in records] == [*pictures[:2], None]
    assert [record.labels.tolist() for record in records] == [[0, 1], [1, 0], [0, 0]]
    assert (records[2].image.tolist(), records[2].text.tolist()) == ([1, 2], [3])


def test_bad_samples_of_a_tar_are_named(tmp_path, pictures, problems):
    files = {
        "a.jpg": pictures[0],
        "b.txt": b"x",
        "c.jpg": b"none",
        "c.txt": b"x",
        "d.json": b"{",
        "e.jpg": pictures[0],
        "e.txt": b"x",
    }
    found = problems(open_records(write_tar(tmp_path / "a.tar", files)))
    for sample, message in {
        "a": "every pair must have a caption. Received: .jpg",
        "b": "every pair must have a picture. Received: .txt",
        "c": "must be a JPEG",
        "d": ".json must be a JSON object",
    }.items():
        assert sum(f"a.tar, sample {sample}: " in problem and message in problem for problem in found) == 1
    assert len(found) == 4


def test_truncated_tar_is_named(tmp_path):
    path = tmp_path / "a.tar"
    write_tar(path, {f"{row:03}.image.npy": vector_file(np.ones(400)) for row in range(3)})
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"a.tar.*(truncated|damaged)"):
        list(open_records(str(path)))
