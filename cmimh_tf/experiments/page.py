"""An experiment as one self-contained HTML page."""

import json
from collections.abc import Mapping, Sequence
from html import escape

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.experiments.experiment import Experiment
from cmimh_tf.experiments.table_text import TableText, to_html


def render_page(
    experiment: Experiment,
    texts: Sequence[TableText],
    notes: Sequence[str],
    facts: Mapping[str, str],
    base: CMIMHConfig,
    figures: Sequence[tuple[bytes, str]],
) -> str:
    """The page: no script, no file beside it, readable at any width.

    Args:
        experiment: what was measured.
        texts: its tables, filled.
        notes: sentences under the tables.
        facts: how the results came about.
        base: the configuration that variants of CMIMH start from.
        figures: SVG files, each with what it shows.
    """
    from cmimh_tf.reports.style import svg_data_uri
    from cmimh_tf.reports.stylesheet import STYLESHEET

    tables = "".join(f"<section><h2>{escape(text.title)}</h2>{to_html(text)}</section>" for text in texts)
    remarks = "".join(f"<li>{escape(note)}</li>" for note in notes)
    pictures = "".join(f'<img class="wide" src="{svg_data_uri(svg)}" alt="{escape(alt)}">' for svg, alt in figures)
    details = "".join(f"<li>{escape(key)}: {escape(value)}</li>" for key, value in facts.items())
    config = escape(json.dumps(base.to_dict(), indent=2))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(experiment.title)}</title>\n<style>{STYLESHEET}</style>\n</head>\n<body>\n<main>\n"
        f'<header><h1>{escape(experiment.title)}</h1><p class="facts">{escape(experiment.about)}</p></header>\n'
        f'{tables}\n<ul class="reasons">{remarks}</ul>\n'
        + (f"<section><h2>Figures</h2>{pictures}</section>\n" if pictures else "")
        + f'<section><h2>How it was made</h2><ul class="reasons">{details}</ul>'
        f"<details><summary>base configuration of CMIMH</summary><pre>{config}</pre></details></section>\n"
        "</main>\n</body>\n</html>\n"
    )
