"""Tables that could be read in two ways are refused, with the line and the names."""

import pytest

from cmimh_tf.data.records import DataError, open_records


def write_table(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['a.jpg,"A dog', "b.jpg,A cat", "c.jpg,A cow"], r"csv, lines 3 to 5: must be CSV. Received: unexpected end"),
        (['a.jpg,"A dog', 'b.jpg,"A cat"'], r"csv, lines 3 to 4: must be CSV. Received: ',' expected after"),
        (['a.jpg,"A" dog', "b.jpg,A cat"], r"csv, line 3: must be CSV. Received: ',' expected after"),
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
