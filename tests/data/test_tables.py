"""Tables in CSV, JSON lines and Parquet: their pairs, and the line of each error."""

import json

import pytest

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.sources import open_records

pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")


def write_table(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['a.jpg,"A dog', "b.jpg,A cat", "c.jpg,A cow"],
            r"csv, lines 3 to 5: must be CSV, .* closed. Received: unexpected end",
        ),
        (['a.jpg,"A dog', 'b.jpg,"A cat"'], r"csv, lines 3 to 4: must be CSV, .* closed. Received: ',' expected after"),
        (['a.jpg,"A" dog', "b.jpg,A cat"], r"csv, line 3: must be CSV, .* closed. Received: ',' expected after"),
    ],
)
def test_quote_that_is_not_closed_swallows_no_pair(tmp_path, lines, message):
    path = write_table(tmp_path / "pairs.csv", "image,text", "z.jpg,First", *lines)
    with pytest.raises(DataError, match=message):
        open_records(path).survey()


def test_quotes_of_csv_are_read(tmp_path):
    lines = ['a.jpg,"A dog,\nand ""Cat"""', 'b.jpg,5" nails', 'c.jpg,""""']
    path = write_table(tmp_path / "pairs.csv", "image,text", *lines)
    rows = [row for _, row in open_records(path).rows()]
    assert [row["text"] for row in rows] == ['A dog,\nand "Cat"', '5" nails', '"']


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("image,text,caption", "pairs.csv: `text` must be one column. Received: text, caption"),
        ("file_name,text,image", "pairs.csv: `image` must be one column. Received: file_name, image"),
        ("image,text,text", "pairs.csv: `text` must be one column. Received: text, text"),
    ],
)
def test_two_columns_of_one_meaning_are_refused(tmp_path, header, message):
    with pytest.raises(DataError, match=message):
        open_records(write_table(tmp_path / "pairs.csv", header, "a,b,c")).survey()


def test_bytes_and_file_name_in_parquet_are_refused(tmp_path):
    columns = {"image": [b"a picture"], "file_name": ["a.jpg"], "text": ["A dog"]}
    pq.write_table(pa.table(columns), tmp_path / "pairs.parquet")
    with pytest.raises(DataError, match=r"pairs.parquet: `image` must be one column. Received: image, file_name"):
        open_records(str(tmp_path / "pairs.parquet")).survey()


def test_two_keys_of_one_meaning_in_json_lines_are_a_problem_of_their_line(tmp_path):
    rows = [
        {"id": "a", "image": [1], "text": [1], "caption": "A dog"},
        {"id": "b", "image": [1], "text": [1]},
        {"id": "c", "image": [1], "file_name": "c.jpg", "caption": "A cat"},
    ]
    reader = open_records(write_table(tmp_path / "pairs.jsonl", *map(json.dumps, rows)))
    found = [str(problem).split(", ", 1)[1] for problem in reader.survey().problems]
    assert found == [
        "line 1: `text` must be one column. Received: text, caption.",
        "line 3: `image` must be one column. Received: image, file_name.",
    ]
    assert [isinstance(record, DataError) for record in reader.scan(0, 3)] == [True, False, True]


def test_other_columns_may_have_any_names(tmp_path):
    path = write_table(tmp_path / "pairs.csv", "file_name,caption,,,title,title", "a.jpg,A dog,1,2,3,4")
    assert next(open_records(path).rows())[1]["text"] == "A dog"


def write_lines(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def test_json_lines_give_pictures_captions_and_labels(picture_folder, pictures):
    rows = [
        {"file_name": "a.jpg", "caption": " A dog ", "labels": ["dog"], "id": 7},
        {"file_name": "b.jpg", "caption": "A cat, a dog", "labels": "cat|dog"},
    ]
    reader = open_records(write_lines(picture_folder / "captions.jsonl", rows[0], "", rows[1]))
    records = list(reader)
    assert reader.index().classes == ["cat", "dog"]
    assert [record.id for record in records] == ["7", "b.jpg"]
    assert [record.caption for record in records] == ["A dog", "A cat, a dog"]
    assert [record.labels.tolist() for record in records] == [[0, 1], [1, 1]]
    assert records[1].image_bytes == pictures[1]
    assert records[1].place.endswith("captions.jsonl, line 3")


def test_json_lines_may_hold_vectors_and_splits(tmp_path):
    column = ("train", "database", "train", "query")
    rows = [{"id": str(row), "image": [row, 1], "text": [1.5], "split": split} for row, split in enumerate(column)]
    index = open_records(write_lines(tmp_path / "a.jsonl", *rows)).index()
    assert index.splits.train.tolist() == [0, 2]
    assert index.splits.database.tolist() == [0, 1, 2]
    assert index.splits.query.tolist() == [3]


def test_every_bad_line_is_named_and_the_others_are_read(picture_folder, pictures, problems):
    (picture_folder / "broken.jpg").write_bytes(pictures[0][:200])
    good = {"image": "a.jpg", "text": "x"}
    path = write_lines(
        picture_folder / "a.jsonl",
        good,
        '{"image": ',
        "[1]",
        {"image": "b.jpg", "text": " "},
        {"image": "missing.jpg", "text": "x"},
        {"image": "broken.jpg", "text": "x"},
        {"image": "c.jpg", "text": "x", "labels": 3},
        {"image": [1, None], "text": "x", "id": 1},
        {"image": "c.jpg", "text": "x", "split": "test"},
        good,
    )
    reader = open_records(path)
    found = problems(reader)
    expected = {
        2: "must be one JSON object",
        3: "must be one JSON object",
        4: "every pair must have a caption. Received: an empty `text`",
        5: "`image` must be a file that can be read",
        6: "must be a JPEG, PNG, GIF or BMP picture. Received: 200 bytes",
        7: "`labels` must be names",
        8: "`image` must be a list of finite numbers",
        9: "`split` must be train, database or query. Received: 'test'",
        10: "ids must not repeat",
    }
    assert len(found) == len(expected)
    for line, message in expected.items():
        assert any(f"a.jsonl, line {line}: " in problem and message in problem for problem in found), line
    with pytest.raises(DataError, match="line 2"):
        reader.index()


def test_parquet_gives_paths_bytes_and_vectors(picture_folder, pictures):
    tables = {
        "paths": {"image": ["a.jpg", "b.jpg"], "caption": ["x", "y"], "labels": [["u"], ["v", "u"]]},
        "bytes": {"image": pictures[:2], "caption": ["x", "y"], "id": ["1", "2"]},
        "structs": {
            "image": [{"bytes": pictures[0], "path": "p"}, {"bytes": None, "path": "b.jpg"}],
            "text": ["x", "y"],
        },
        "vectors": {"image": [[1.0, 2.0], [3.0, 4.0]], "text": [[1], [2]], "id": [1, 2]},
    }
    for name, columns in tables.items():
        # Two row groups, so that a block that is not the first is read too.
        pq.write_table(pa.table(columns), picture_folder / f"{name}.parquet", row_group_size=1)
    records = {name: list(open_records(str(picture_folder / f"{name}.parquet"))) for name in tables}
    for name in ("paths", "bytes", "structs"):
        assert [record.image_bytes for record in records[name]] == pictures[:2]
        assert [record.caption for record in records[name]] == ["x", "y"]
    assert [record.labels.tolist() for record in records["paths"]] == [[1, 0], [1, 1]]
    assert [record.image.tolist() for record in records["vectors"]] == [[1, 2], [3, 4]]
    second = next(open_records(str(picture_folder / "vectors.parquet")).read(1, 2))
    assert (second.id, second.place) == ("2", f"{picture_folder}/vectors.parquet, row 1")


def test_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"a.parquet: must be a Parquet file"):
        open_records(str(tmp_path / "a.parquet")).index()
