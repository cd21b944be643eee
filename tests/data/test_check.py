"""`python -m cmimh_tf.data check` reports contents and errors, and whether training could start."""

import argparse
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cmimh_tf.data.__main__ import run_check
from cmimh_tf.data.check import check_source
from cmimh_tf.data.check_report import draw_contact_sheet, to_lines
from cmimh_tf.data.npz import save_npz
from cmimh_tf.data.pairs import DataError, PairedData
from cmimh_tf.data.records import PairRecord
from cmimh_tf.data.sources import open_records


def write_pairs(folder, rows=10, change=None):
    """Pictures and captions of which a `change` may replace lines; returns the path of the table."""
    lines = ["image,text,labels"]
    for row in range(rows):
        picture = np.full((4, 4 + row, 3), row, np.uint8)
        (folder / f"{row}.png").write_bytes(tf.io.encode_png(picture).numpy())
        lines.append(f"{row}.png,caption {row} $x_1$ 日,{'odd' if row % 2 else ''}")
    for line, text in (change or {}).items():
        lines[line - 1] = text
    path = folder / "pairs.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def check(path, tmp_path, capsys, as_json=True):
    arguments = argparse.Namespace(
        path=path, model=None, sheet=tmp_path / "sheet.png", no_sheet=False, seed=0, json=as_json
    )
    code = run_check(arguments)
    printed = capsys.readouterr().out
    return code, json.loads(printed) if as_json else printed


def test_good_pictures_and_captions(tmp_path, capsys):
    code, found = check(write_pairs(tmp_path), tmp_path, capsys)
    assert code == 0
    assert found["can_train"]
    assert found["records"] == 10
    assert found["image"]["formats"] == {"PNG": 10}
    assert found["image"]["sizes"] == [[4, 4], [13, 4]]
    assert found["text"]["sizes"] == [4, 4]
    assert found["labels"] == {"classes": 1, "labelled": 5, "total": 5}
    assert found["splits"] == {"train": 9, "database": 9, "query": 1}
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_bad_records_are_counted_and_named_by_line(tmp_path, capsys):
    change = {3: "missing.png,a,b", 5: "3.png,,b", 7: "0.png,again,b", 8: "just one field"}
    code, found = check(write_pairs(tmp_path, change=change), tmp_path, capsys)
    assert code == 1
    assert not found["can_train"]
    assert found["num_problems"] == 4
    for line in change:
        assert sum(f"pairs.csv, line {line}: " in problem for problem in found["problems"]) == 1
    assert found["image"]["duplicates"] == 1
    assert found["image"]["duplicate_examples"][0].endswith("pairs.csv, line 2")


def test_text_for_the_screen(tmp_path, capsys):
    code, printed = check(write_pairs(tmp_path, change={4: "2.png,,x"}), tmp_path, capsys, as_json=False)
    lines = printed.splitlines()
    assert code == 1
    assert lines[0].endswith("pairs: 10 records")
    assert any("9 pictures (9 PNG), 4 x 4 to 13 x 4" in line for line in lines)
    assert any("line 4: every pair must have a caption" in line for line in lines)
    assert "training cannot start: 1 error" in lines


def test_official_query_set_of_vectors_is_kept(tmp_path, capsys):
    generator = np.random.default_rng(0)
    data = PairedData(generator.random((20, 6)), generator.random((20, 3)), is_query=np.arange(20) < 5)
    save_npz(tmp_path / "wiki.npz", data)
    code, found = check(str(tmp_path / "wiki.npz"), tmp_path, capsys)
    assert code == 0
    assert found["splits"] == {"train": 15, "database": 15, "query": 5}
    assert found["image"]["widths"] == {"6": 20}
    assert (tmp_path / "sheet.png").exists()


@pytest.mark.parametrize(
    ("image", "text", "message"),
    [
        (np.ones((20, 2)), np.eye(20), "`image` must vary. Received: 20 records that are all equal"),
        (np.eye(4), np.eye(4), "the data cannot be split, or a split would be empty"),
    ],
)
def test_vectors_that_cannot_be_trained_on(tmp_path, image, text, message):
    save_npz(tmp_path / "a.npz", PairedData(image, text))
    found = check_source(open_records(str(tmp_path / "a.npz")))
    assert not found.can_train
    assert any(message in line for line in to_lines(found))


def test_widths_and_kinds_must_agree(tmp_path):
    rows = [{"id": str(row), "image": [row + 1.0] * (1 + row % 2), "text": [row, 1.0]} for row in range(9)]
    rows[3]["text"] = "a caption"
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = check_source(open_records(str(path)))
    assert any("`image` must have one width. Received: 5 of width 1, 4 of width 2" in text for text in found.problems)
    assert any("`text` must be a vector in all records or in none" in text for text in found.problems)


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(("rows", "code"), [(10, 0), (2, 1)])
def test_report_is_printed_where_the_sheet_cannot_be_written(tmp_path, capsys, as_json, rows, code):
    (tmp_path / "file").write_bytes(b"")
    path = write_pairs(tmp_path, rows)
    arguments = argparse.Namespace(
        path=path, model=None, sheet=tmp_path / "file" / "a.png", no_sheet=False, seed=0, json=as_json
    )
    assert run_check(arguments) == code
    printed, reported = capsys.readouterr()
    if as_json:
        assert (json.loads(printed)["records"], json.loads(printed)["contact_sheet"]) == (rows, None)
    else:
        assert printed.splitlines()[0].endswith(f"pairs: {rows} records")
        assert "contact sheet" not in printed
    # Before it is the progress, which ends in no line.
    assert reported.splitlines()[-1].startswith("no contact sheet: ")


def test_picture_that_is_too_large_is_a_problem_of_its_record(tmp_path, monkeypatch):
    path = write_pairs(tmp_path)
    (tmp_path / "4.png").write_bytes(tf.io.encode_png(np.zeros((50, 50, 3), np.uint8)).numpy())
    # PIL refuses twice as many; one picture of 50 x 50 stands for one of 15,000 x 15,000.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    found = check_source(open_records(path))
    assert (found.num_records, found.num_problems, found.image.raw, found.text.raw) == (10, 1, 9, 9)
    assert "pairs.csv, line 6: `image` must be a picture that can be displayed. Received: " in found.problems[0]
    assert "2500 pixels" in found.problems[0]
    assert len(found.samples) == 9


def test_sheet_names_a_picture_that_is_too_large(tmp_path, monkeypatch):
    picture = tf.io.encode_png(np.zeros((50, 50, 3), np.uint8)).numpy()
    record = PairRecord("a", "pairs.csv, line 2", image_bytes=picture, caption="x")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match=r"pairs.csv, line 2: `image` must be a picture that can be displayed"):
        draw_contact_sheet(tmp_path / "sheet.png", [record], None, "title")


def test_each_problem_is_counted_once(tmp_path):
    change = {line: f"{line}.png,,x" for line in range(2, 32)}
    found = check_source(open_records(write_pairs(tmp_path, rows=40, change=change)))
    assert found.num_problems == 30
    assert len(found.problems) == 20
