"""An index in memory whose codes are made of colours and shapes, so that tests know what a search must find."""

from __future__ import annotations

import io
import itertools
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from serving.errors import ServingError, invalid_argument
from serving.search.bodies import NewItem, Query, SearchRequest
from serving.search.index_versions import Found, Hit, Item

COLOURS = {
    "red": (214, 40, 40), "orange": (240, 140, 30), "yellow": (245, 205, 50), "green": (60, 160, 80),
    "teal": (30, 150, 160), "blue": (40, 90, 200), "purple": (130, 70, 180), "grey": (120, 120, 120),
}  # fmt: skip
SHAPES = ("circle", "square", "triangle", "bar", "ring")
BITS = 32
_WORDS = (*COLOURS, *SHAPES)
# 16 bits per word. Colours are the first half of a code and differ in 8 bits, shapes are the other one and differ in 4.
_HALVES = {
    **{colour: sum(((row & bit).bit_count() & 1) << bit for bit in range(16)) for row, colour in enumerate(COLOURS, 1)},
    **{shape: 3 << 3 * row for row, shape in enumerate(SHAPES)},
}
_COMPARISON = re.compile(r"\"?(\w+)\"?\s*(=|>=|<=)\s*(?:'((?:[^']|'')*)'|(-?[\d.]+))")


def draw(colour: str, shape: str, size: int = 96) -> bytes:
    """A PNG of a shape on white."""
    picture = Image.new("RGB", (size, size), "white")
    pen, paint, box = ImageDraw.Draw(picture), COLOURS[colour], (16, 16, size - 16, size - 16)
    if shape == "circle":
        pen.ellipse(box, paint)
    elif shape == "square":
        pen.rectangle(box, paint)
    elif shape == "triangle":
        pen.polygon([(size // 2, 12), (12, size - 16), (size - 12, size - 16)], paint)
    elif shape == "bar":
        pen.rectangle((8, size // 2 - 10, size - 8, size // 2 + 10), paint)
    else:
        pen.ellipse(box, outline=paint, width=12)
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    return encoded.getvalue()


def code_of_text(text: str) -> bytes:
    """The code of a text: zeros for words that are not known."""
    code = bytearray(BITS // 8)
    for word in text.lower().split():
        if word in _WORDS:
            half = 0 if word in COLOURS else 2
            code[half : half + 2] = _HALVES[word].to_bytes(2, "little")
    return bytes(code)


def code_of_picture(data: bytes) -> bytes:
    """The code of a picture: that of the colour nearest to its darkest part."""
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.float32).reshape(-1, 3)
    painted = pixels[pixels.sum(axis=1) < 600]
    mean = painted.mean(axis=0) if len(painted) else np.zeros(3)
    nearest = min(COLOURS, key=lambda name: float(np.abs(np.array(COLOURS[name]) - mean).sum()))
    return code_of_text(nearest)


class FakeIndex:
    """Implements `serving.search.index_versions.OpenIndex`.

    Attributes:
        delay: seconds that every search takes.
        failure: raised by the next searches if it is not None.
        closed: whether `close` was called.
    """

    def __init__(self, folder: Path, copies: int = 1, version: int | None = None, name: str = "shapes"):
        self.name, self.version = name, version
        self.delay, self.failure, self.closed = 0.0, None, False
        self.searches: list[SearchRequest] = []
        self._lock = threading.Lock()
        self._items: dict[str, Item] = {}
        numbers = itertools.count(1)
        for copy, colour, shape in itertools.product(range(copies), COLOURS, SHAPES):
            number = next(numbers)
            picture = f"{colour}-{shape}.png"
            if not (folder / picture).exists():
                (folder / picture).write_bytes(draw(colour, shape))
            metadata = {"label": [colour, shape], "year": 2000 + number % 24, "source": f"set {copy % 3}"}
            code = code_of_text(f"{colour} {shape}")
            text = f"a {colour} {shape}, number {number}"
            codes = {"image": _flipped(code, number), "text": _flipped(code, number + 1)}
            self._items[str(number)] = Item(str(number), text, picture, metadata, codes)

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "items": len(self._items), "bits": BITS, "model": "fake"}

    def columns(self) -> list[dict[str, Any]]:
        return [
            {"name": "label", "type": "label", "values": list(_WORDS), "complete": True},
            {"name": "year", "type": "number", "range": [2000, 2023]},
            {"name": "source", "type": "string", "values": ["set 0", "set 1", "set 2"], "complete": True},
        ]

    def rerankings(self) -> list[str]:
        return ["asymmetric", "none"]

    def search(self, request: SearchRequest) -> tuple[dict[str, Any], list[Found]]:
        assert not self.closed
        self.searches.append(request)
        time.sleep(self.delay)
        if self.failure is not None:
            raise self.failure
        passes = _filter(request.where)
        return self.facts(), [self._find(query, request, passes) for query in request.queries]

    def _find(self, query: Query, request: SearchRequest, passes: Any) -> Found:
        code = self._code(query)
        sides = {"images": ["image"], "texts": ["text"], "both": ["image", "text"]}[request.find]
        hits = []
        for item in list(self._items.values()):
            if not passes(item) or (query.kind == "id" and item.id == query.value):
                continue
            for side in sides:
                if side in item.codes:
                    distance = _distance(code, item.codes[side])
                    # The re-ranked order differs from the plain one, so that tests can tell them apart.
                    shift = 0.0 if request.rerank == "none" else 0.01 * (int(item.id) % 5) if item.id.isdigit() else 0.0
                    hits.append(Hit(item, side, distance, 1 - 2 * distance / BITS - shift, item.codes[side]))
        hits = [hit for hit in hits if request.radius is None or hit.distance <= request.radius]
        hits.sort(key=lambda hit: -hit.score)
        return Found(code, hits[: request.top])

    def _code(self, query: Query) -> bytes:
        if query.kind == "text":
            return code_of_text(query.value)
        if query.kind == "image":
            return code_of_picture(query.value)
        if query.kind == "code":
            if len(query.value) != BITS // 4:
                raise invalid_argument(f"`{query.field()}` must have {BITS} bits. Received: {query.value}.")
            return bytes.fromhex(query.value)
        item = self._items.get(query.value)
        if item is None:
            raise ServingError("NOT_FOUND", f"`{query.field()}` must be the id of an item. Received: {query.value!r}.")
        side = query.side or next(iter(item.codes))
        if side not in item.codes:
            raise invalid_argument(f"`{query.field('side')}` must be a side of the item. Received: {side}.")
        return item.codes[side]

    def items(self, ids: Sequence[str]) -> list[Item | None]:
        return [self._items.get(id) for id in ids]

    def sample(self, count: int) -> list[Item]:
        items = list(self._items.values())
        return items[:: max(1, len(items) // count)][:count]

    def add(self, items: Sequence[NewItem]) -> int:
        with self._lock:
            replaced = sum(item.id in self._items for item in items)
            for item in items:
                codes = {} if item.text is None else {"text": code_of_text(item.text)}
                if item.image is not None:
                    codes = {"image": code_of_picture(item.image), **codes}
                self._items[item.id] = Item(item.id, item.text, item.picture, item.metadata, codes)
            return replaced

    def remove(self, id: str) -> bool:
        with self._lock:
            return self._items.pop(id, None) is not None

    def close(self) -> None:
        self.closed = True


def _flipped(code: bytes, seed: int) -> bytes:
    bit = seed % BITS
    flipped = bytearray(code)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def _distance(first: bytes, second: bytes) -> int:
    return (int.from_bytes(first, "little") ^ int.from_bytes(second, "little")).bit_count()


def _filter(where: str | None) -> Any:
    """A function that tells whether an item passes: comparisons joined by `and`."""
    if where is None:
        return lambda item: True
    tests = []
    for part in re.split(r"\s+and\s+", where):
        match = _COMPARISON.fullmatch(part.strip("() "))
        if match is None:
            raise invalid_argument(f"`where` cannot be parsed at character 1. Received: {where}.")
        column, operator, text, number = match.groups()
        if column not in ("label", "year", "source"):
            raise invalid_argument(f"`where` must name columns of the index. Received: {column}.")
        tests.append((column, operator, text.replace("''", "'") if number is None else float(number)))
    return lambda item: all(_passes(item.metadata.get(column), operator, value) for column, operator, value in tests)


def _passes(held: Any, operator: str, value: Any) -> bool:
    if held is None:
        return False
    if isinstance(held, list):
        return value in held
    return {"=": held == value, ">=": held >= value, "<=": held <= value}[operator]
