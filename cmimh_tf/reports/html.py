"""HTML pages from jinja2 templates: one file each, without scripts or external resources."""

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **context: Any) -> str:
    """Renders a page. Every value is escaped, and a missing one is an error.

    Args:
        template: a file in templates/, such as "experiment.html".
        context: the values that the template uses.
    """
    return _environment().get_template(template).render(**context)


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cmimh_tf.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["percent"] = _percent
    environment.filters["points"] = _points
    return environment


def _percent(share: float) -> str:
    """0.8173 -> "81.7"."""
    return f"{100 * share:.1f}"


def _points(difference: float) -> str:
    """0.012 -> "+1.2"."""
    return f"{100 * difference:+.1f}"
