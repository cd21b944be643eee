"""The parser of filters, and the check against columns."""

import pytest

from cmimh_tf.search.filters import AllOf, AnyOf, Comparison, FilterError, bind, like_pattern, parse_filter

COLUMNS = {"year": "number", "name": "string", "label": "labels"}


def compared(where):
    """The tree of a filter without the positions."""

    def plain(condition):
        if isinstance(condition, Comparison):
            return (condition.column, condition.operator, *condition.values)
        return ("and" if isinstance(condition, AllOf) else "or", *map(plain, condition.parts))

    return plain(parse_filter(where))


@pytest.mark.parametrize(
    ("where", "tree"),
    [
        ("year >= 2020", ("year", ">=", 2020.0)),
        ("year==-1.5e3", ("year", "=", -1500.0)),
        ("year <> .5", ("year", "!=", 0.5)),
        ("name = 'it''s'", ("name", "=", "it's")),
        ("name = ''", ("name", "=", "")),
        ('"Photo Year" < 3', ("Photo Year", "<", 3.0)),
        ("indoor = TRUE and flag != false", ("and", ("indoor", "=", 1.0), ("flag", "!=", 0.0))),
        ("a in (1, 2)", ("a", "in", 1.0, 2.0)),
        ("a NOT IN ('x')", ("a", "not in", "x")),
        ("a like 'x%' or a not like '_'", ("or", ("a", "like", "x%"), ("a", "not like", "_"))),
        ("a is null and b is not null", ("and", ("a", "is null"), ("b", "is not null"))),
        ("a = 1 or b = 2 and c = 3", ("or", ("a", "=", 1.0), ("and", ("b", "=", 2.0), ("c", "=", 3.0)))),
        ("(a = 1 or b = 2) and c = 3", ("and", ("or", ("a", "=", 1.0), ("b", "=", 2.0)), ("c", "=", 3.0))),
        ("größe > 1", ("größe", ">", 1.0)),
        ("android = 1", ("android", "=", 1.0)),
    ],
)
def test_parse(where, tree):
    assert compared(where) == tree


@pytest.mark.parametrize(
    ("where", "tree"),
    [
        ("not a = 1", ("a", "!=", 1.0)),
        ("not not a = 1", ("a", "=", 1.0)),
        ("not a < 1", ("a", ">=", 1.0)),
        ("not a > 1", ("a", "<=", 1.0)),
        ("not a >= 1", ("a", "<", 1.0)),
        ("not a <= 1", ("a", ">", 1.0)),
        ("not (a = 1 and b in (2))", ("or", ("a", "!=", 1.0), ("b", "not in", 2.0))),
        ("not (a is null or not b like 'x')", ("and", ("a", "is not null"), ("b", "like", "x"))),
        ("not a not in (1)", ("a", "in", 1.0)),
    ],
)
def test_negation_moves_to_the_comparisons(where, tree):
    assert compared(where) == tree


@pytest.mark.parametrize(
    ("where", "position", "rule"),
    [
        ("", 1, "the name of a column must stand here"),
        ("year >= ", 9, "a value must follow here"),
        ("year >= and", 9, "a value must follow here"),
        ("year >> 3", 7, "a value must follow here"),
        ("year 3", 6, "=, !=, <"),
        ("name = dog", 8, "a text in single quotes"),
        ('name = "dog"', 8, "a text in single quotes"),
        ("name = 'dog", 8, "a quote must be closed"),
        ("name = null", 8, "selected with `is null`"),
        ("name like 5", 11, "a text in single quotes must follow `like`"),
        ("name is 5", 9, "`null` must follow `is`"),
        ("name not 5", 10, "`in` or `like` must follow `not`"),
        ("name in 5", 9, "a list in parentheses must follow `in`"),
        ("name in (5", 11, "`,` or `)` must follow"),
        ("name in ()", 10, "a value must follow here"),
        ("(a = 1", 7, "`)` must close the parenthesis"),
        ("a = 1 b = 2", 7, "`and`, `or` or the end of the filter"),
        ("a = 1)", 6, "`and`, `or` or the end of the filter"),
        ("5 = a", 1, "the name of a column must stand here"),
        ("a = 1; drop table items", 6, "a name, a value or an operator must stand here"),
        ("a = 2020x", 5, "a name, a value or an operator must stand here"),
        ("a = 1e999", 5, "within the range of 64-bit floats"),
        ("a = '\0'", 5, "without NUL"),
        ("a = '\ud800'", 5, "valid Unicode"),
        ("(" * 101 + "a = 1" + ")" * 101, 101, "at most 100 deep"),
    ],
)
def test_errors_name_the_position_and_the_rule(where, position, rule):
    with pytest.raises(FilterError) as caught:
        parse_filter(where)
    assert f"at character {position}: " in str(caught.value)
    assert rule in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bind_finds_columns_fields_and_aliases():
    assert bind(parse_filter("labels = 'dog'"), COLUMNS) == Comparison("label", "=", ("dog",), "labels", 1)
    assert bind(parse_filter("year > 3"), COLUMNS).kind == "number"
    assert bind(parse_filter("caption like '%dog%' or id = 17"), COLUMNS) == AnyOf(
        (Comparison("caption", "like", ("%dog%",), "string", 1), Comparison("id", "=", ("17",), "string", 25))
    )
    assert bind(parse_filter("label in (1, 2)"), COLUMNS).values == ("1", "2")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("yaer > 3", "Received: yaer at character 1. Did you mean year?"),
        ("x = 1 and nme = 'a'", "Received: x at character 1. Columns: caption, id, label, name, picture, year."),
        ("year = '2020'", "`where` must compare year with numbers, without quotes. Received: '2020'."),
        ("name = 3", "`where` must compare name with texts, in single quotes. Received: 3."),
        ("label = 1.5", "`where` must compare label with texts"),
        ("label < 'x'", "Received: < at character 1."),
        ("label like 'x'", "Received: like at character 1."),
        ("year like 'x'", "`where` must use like with texts only. Received: year, which holds numbers."),
    ],
)
def test_bind_rejects_what_does_not_fit(where, message):
    with pytest.raises(FilterError) as caught:
        bind(parse_filter(where), COLUMNS)
    assert message in str(caught.value)


def test_like_pattern_escapes_everything_but_the_wildcards():
    assert like_pattern("a.c%").fullmatch("a.cd\ne")
    assert not like_pattern("a.c%").fullmatch("abc")
    assert like_pattern("_").fullmatch("☃")
    assert not like_pattern("_").fullmatch("ab")
    assert not like_pattern("Dog").fullmatch("dog")


def test_a_filter_must_be_a_string():
    with pytest.raises(TypeError, match="`where` must be a string"):
        parse_filter(5)
