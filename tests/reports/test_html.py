"""Pages from templates: values are escaped, missing ones are errors, and nothing is loaded from outside."""

from importlib import resources

import jinja2
import pytest

from cmimh_tf.reports.html import _environment, render

CONTEXT = {
    "title": "<b>mine</b>",
    "about": "",
    "tables": [],
    "findings": [],
    "notes": [],
    "plots": [],
    "details": {"command": "python -m cmimh_tf.experiments main"},
    "config": "{}",
}


def test_values_are_escaped():
    page = render("experiment.html", **CONTEXT)
    assert "<title>&lt;b&gt;mine&lt;/b&gt;</title>" in page
    assert "<b>mine" not in page


def test_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="'findings' is undefined"):
        render("experiment.html", **{key: value for key, value in CONTEXT.items() if key != "findings"})


def test_page_has_its_stylesheet_for_light_and_dark():
    page = render("experiment.html", **CONTEXT)
    assert "prefers-color-scheme: dark" in page
    assert "--ink: #1f2328" in page


@pytest.mark.parametrize("name", ["model.html", "experiment.html", "search.html"])
def test_templates_load_nothing_from_outside(name):
    source = _environment().loader.get_source(_environment(), name)[0]
    assert '{% extends "base.html" %}' in source
    for outside in ("<script", "<link", "http:", "https:", "| safe", "|safe"):
        assert outside not in source


def test_templates_are_package_data():
    names = {path.name for path in resources.files("cmimh_tf.reports").joinpath("templates").iterdir()}
    assert names == {"base.html", "model.html", "experiment.html", "search.html", "stylesheet.css"}
