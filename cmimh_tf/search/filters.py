"""Filters such as `label = 'dog' and year >= 2020`: a parser, and a check against the columns of an index.

    condition   = conjunction ("or" conjunction)*
    conjunction = negation ("and" negation)*
    negation    = "not" negation | "(" condition ")" | comparison
    comparison  = column ("=" | "!=" | "<" | "<=" | ">" | ">=") value
                | column ["not"] "in" "(" value ("," value)* ")"
                | column ["not"] "like" text
                | column "is" ["not"] "null"

A column is a name, in double quotes if it is not a plain word. A value is a number, `true`, `false`, or a text in
single quotes, in which '' stands for one quote. In `like`, % stands for any characters and _ for one; case matters.

A missing value passes no comparison but `is null`. Columns of labels hold several values: `label = 'dog'` selects the
items that have this label, `label != 'dog'` those that do not, and `label is null` those without labels.

The parser moves every "not" down to the comparisons, so that an engine translates only these, "and" and "or".
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

NUMBER, STRING, LABELS = "number", "string", "labels"
Value = str | float

# Fields that every item has, beside the metadata columns.
FIELDS = {"id": STRING, "caption": STRING, "picture": STRING}
LABEL_COLUMN = "label"
_ALIASES = {"labels": LABEL_COLUMN}

_NEGATED = {
    "=": "!=",
    "<": ">=",
    "<=": ">",
    "in": "not in",
    "like": "not like",
    "is null": "is not null",
}
_NEGATED |= {after: before for before, after in _NEGATED.items()}
_LABEL_OPERATORS = ("=", "!=", "in", "not in", "is null", "is not null")
_MOST_NESTED = 100
_WORDS = ("and", "or", "not", "in", "like", "is", "null", "true", "false")
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w))
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"[^"]+")
      | (?P<name>[^\W\d]\w*)
      | (?P<symbol><=|>=|!=|<>|==|[=<>(),])
      | (?P<end>$)
    )""",
    re.VERBOSE,
)


class FilterError(ValueError):
    """A filter that cannot be parsed, or does not fit the columns of an index."""


@dataclass(frozen=True)
class Comparison:
    """One comparison.

    Attributes:
        column: the name of the column.
        operator: "=", "!=", "<", "<=", ">", ">=", "in", "not in", "like", "not like", "is null" or "is not null".
        values: one value, none for "is null", one or more for "in".
        kind: "number", "string" or "labels", once `bind` has looked it up.
        position: where the column stands in the filter, counted from 1.
    """

    column: str
    operator: str
    values: tuple[Value, ...] = ()
    kind: str = ""
    position: int = 0


@dataclass(frozen=True)
class AllOf:
    """Conditions that must all hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """Conditions of which one must hold."""

    parts: tuple[Condition, ...]


Condition = Comparison | AllOf | AnyOf


@functools.lru_cache(maxsize=256)
def parse_filter(where: str) -> Condition:
    """Parses a filter.

    Raises:
        FilterError: with the position and the reason.
    """
    if not isinstance(where, str):
        raise TypeError(f"`where` must be a string. Received: {where!r}.")
    return _Parser(where).parse()


def bind(condition: Condition, columns: Mapping[str, str]) -> Condition:
    """Looks up the columns of a condition and checks that its values fit them.

    Args:
        condition: of `parse_filter`.
        columns: the kind of each metadata column.

    Raises:
        FilterError: for an unknown column, with the nearest names, and for a value of the wrong kind.
    """
    if isinstance(condition, Comparison):
        return _bind_comparison(condition, {**FIELDS, **columns})
    return replace(condition, parts=tuple(bind(part, columns) for part in condition.parts))


def like_pattern(pattern: str) -> re.Pattern[str]:
    """The regular expression of a `like` pattern, to be used with `fullmatch`."""
    wildcards = {"%": ".*", "_": "."}
    return re.compile("".join(wildcards.get(character) or re.escape(character) for character in pattern), re.DOTALL)


def nearest_names(name: str, names: Iterable[str]) -> str:
    """ " Did you mean year or years?" if some names are near, else the list of all names."""
    known = sorted(names)
    by_lower_case = {known_name.lower(): known_name for known_name in known}
    nearest = [by_lower_case[near] for near in difflib.get_close_matches(name.lower(), by_lower_case, n=3)]
    return f" Did you mean {' or '.join(nearest)}?" if nearest else f" Columns: {', '.join(known)}."


def is_unicode(text: str) -> bool:
    """Whether a string can be stored as UTF-8, that is, has no lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _Parser:
    """A recursive-descent parser of the grammar above."""

    def __init__(self, where: str):
        self.where = where
        self.tokens = list(_tokens(where))
        self.next = 0
        self.depth = 0

    def parse(self) -> Condition:
        condition = self.any_of()
        if not self.at("end"):
            self.fail("`and`, `or` or the end of the filter must follow here")
        return condition

    def any_of(self) -> Condition:
        parts = [self.all_of()]
        while self.take("word", "or"):
            parts.append(self.all_of())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def all_of(self) -> Condition:
        parts = [self.negation()]
        while self.take("word", "and"):
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def negation(self) -> Condition:
        self.depth += 1
        if self.depth > _MOST_NESTED:
            self.fail(f"parentheses and `not` must be nested at most {_MOST_NESTED} deep")
        try:
            if self.take("word", "not"):
                return _negate(self.negation())
            if self.take("symbol", "("):
                condition = self.any_of()
                if not self.take("symbol", ")"):
                    self.fail("`)` must close the parenthesis here")
                return condition
            return self.comparison()
        finally:
            self.depth -= 1

    def comparison(self) -> Condition:
        _, column, position = self.tokens[self.next]
        if not (self.take("name") or self.take("quoted")):
            self.fail("the name of a column must stand here")
        column = column.strip('"')
        negated = self.take("word", "not")
        if self.take("word", "in"):
            found = Comparison(column, "in", self.values(), position=position)
        elif self.take("word", "like"):
            pattern = self.value()
            if not isinstance(pattern, str):
                self.fail("a text in single quotes must follow `like`", back=1)
            found = Comparison(column, "like", (pattern,), position=position)
        elif negated:
            self.fail("`in` or `like` must follow `not` here")
        elif self.take("word", "is"):
            operator = "is not null" if self.take("word", "not") else "is null"
            if not self.take("word", "null"):
                self.fail("`null` must follow `is` here")
            return Comparison(column, operator, position=position)
        else:
            return Comparison(column, self.operator(), (self.value(),), position=position)
        return _negate(found) if negated else found

    def operator(self) -> str:
        _, symbol, _ = self.tokens[self.next]
        if symbol not in ("=", "==", "!=", "<>", "<", "<=", ">", ">=") or not self.take("symbol"):
            self.fail("=, !=, <, <=, >, >=, `in`, `like` or `is null` must follow a column")
        return {"==": "=", "<>": "!="}.get(symbol, symbol)

    def values(self) -> tuple[Value, ...]:
        if not self.take("symbol", "("):
            self.fail("a list in parentheses must follow `in`")
        values = [self.value()]
        while self.take("symbol", ","):
            values.append(self.value())
        if not self.take("symbol", ")"):
            self.fail("`,` or `)` must follow a value of the list")
        return tuple(values)

    def value(self) -> Value:
        kind, content, _ = self.tokens[self.next]
        if self.take("number"):
            number = float(content)
            if not math.isfinite(number):
                self.fail("a number must be within the range of 64-bit floats", back=1)
            return number
        if self.take("text"):
            if "\0" in content or not is_unicode(content):
                self.fail("a text must be valid Unicode without NUL characters", back=1)
            return content[1:-1].replace("''", "'")
        if self.take("word", "true") or self.take("word", "false"):
            return float(content.lower() == "true")
        if kind in ("name", "quoted"):
            self.fail("a value must be a number, or a text in single quotes")
        if (kind, content.lower()) == ("word", "null"):
            self.fail("a missing value must be selected with `is null`")
        self.fail("a value must follow here: a number, or a text in single quotes")

    def at(self, kind: str, content: str | None = None) -> bool:
        found, text, _ = self.tokens[self.next]
        return found == kind and content in (None, text.lower())

    def take(self, kind: str, content: str | None = None) -> bool:
        found = self.at(kind, content)
        self.next += found
        return found

    def fail(self, rule: str, back: int = 0) -> NoReturn:
        kind, content, position = self.tokens[self.next - back]
        received = "the end of the filter" if kind == "end" else content
        raise FilterError(
            f"`where` cannot be parsed at character {position}: {rule}. Received: {received}, in {self.where[:200]!r}."
        )


def _tokens(where: str) -> Iterable[tuple[str, str, int]]:
    """(kind, text, position) of each token; the last one is the end."""
    start, kind = 0, ""
    while kind != "end":
        match = _TOKEN.match(where, start)
        if match is None:
            position = start + len(where[start:]) - len(where[start:].lstrip())
            rest = where[position : position + 20]
            rule = "a quote must be closed" if rest[0] in "'\"" else "a name, a value or an operator must stand here"
            raise FilterError(
                f"`where` cannot be parsed at character {position + 1}: {rule}. Received: {rest}, in {where[:200]!r}."
            )
        kind = match.lastgroup or "end"
        text = match[kind]
        position = match.start(kind) + 1
        yield ("word" if kind == "name" and text.lower() in _WORDS else kind), text, position
        start = match.end()


def _negate(condition: Condition) -> Condition:
    """The opposite condition, by De Morgan's rules; a missing value fails a comparison and its opposite."""
    if isinstance(condition, Comparison):
        return replace(condition, operator=_NEGATED[condition.operator])
    opposite = AnyOf if isinstance(condition, AllOf) else AllOf
    return opposite(tuple(_negate(part) for part in condition.parts))


def _bind_comparison(comparison: Comparison, columns: Mapping[str, str]) -> Comparison:
    name = comparison.column if comparison.column in columns else _ALIASES.get(comparison.column, comparison.column)
    if name not in columns:
        raise FilterError(
            f"`where` must name columns of the index. Received: {comparison.column} at character {comparison.position}."
            f"{nearest_names(comparison.column, columns)}"
        )
    kind = columns[name]
    if kind == LABELS and comparison.operator not in _LABEL_OPERATORS:
        raise FilterError(
            f"`where` must compare the labels of {name} with =, !=, in or is null. Received: {comparison.operator} at "
            f"character {comparison.position}."
        )
    if kind == NUMBER and comparison.operator in ("like", "not like"):
        raise FilterError(f"`where` must use like with texts only. Received: {name}, which holds numbers.")
    values = tuple(_bind_value(value, kind, name) for value in comparison.values)
    return replace(comparison, column=name, kind=kind, values=values)


def _bind_value(value: Value, kind: str, name: str) -> Value:
    if kind == NUMBER and isinstance(value, str):
        raise FilterError(f"`where` must compare {name} with numbers, without quotes. Received: {value!r}.")
    if kind != NUMBER and not isinstance(value, str):
        # Ids and labels are often digits, and people leave out the quotes.
        if (name == "id" or kind == LABELS) and value == int(value):
            return str(int(value))
        raise FilterError(f"`where` must compare {name} with texts, in single quotes. Received: {value:g}.")
    return value
