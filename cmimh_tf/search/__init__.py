"""Search: an index of binary codes that finds pictures by text and texts by pictures.

>>> import numpy as np
>>> from cmimh_tf import create_index, open_index
>>> codes = np.array([[0, 0, 0, 0], [255, 0, 0, 0]], np.uint8)
>>> with create_index("index", code_length=32) as index:
...     added = index.add_codes(["a", "b"], image_codes=codes, metadata={"label": [["dog"], ["cat"]]})
>>> hits = open_index("index").search(codes=codes[:1], find="images", top=10, where="label = 'dog'")
>>> hits[0].id, hits[0].distance
('a', 0)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmimh_tf.search.api import Hit, Index, Neighbours, Results, create_index, open_index

_MODULES = {
    "Hit": "api",
    "Index": "api",
    "Neighbours": "api",
    "Results": "api",
    "create_index": "api",
    "open_index": "api",
}
__all__ = ["Hit", "Index", "Neighbours", "Results", "create_index", "open_index"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'cmimh_tf.search' has no attribute {name!r}")
    return getattr(importlib.import_module(f"cmimh_tf.search.{_MODULES[name]}"), name)
