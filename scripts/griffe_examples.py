"""A Griffe extension for `make docs`: our docstrings write `Example:`, Griffe parses `Examples:` as code."""

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Renames the sections before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
