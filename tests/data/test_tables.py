"""Tables that could be read in two ways are refused, with the line and the names."""

import json

import pytest

from cmimh_tf.data.records import DataError, open_records

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
