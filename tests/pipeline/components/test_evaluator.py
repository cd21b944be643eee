"""When a model is blessed, by hand-made scores; baselines that cannot read the data; data that stay in files."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf import get_preset, train_model
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.overrides import override
from cmimh_tf.stored_rows import store_rows
from cmimh_tf.training.evaluation import evaluate_model
from pipeline import evaluation_report
from pipeline.components import evaluator
from pipeline.components.evaluator import Thresholds, judge


def labelled(image_to_text, text_to_image, chance=0.1):
    return {"labels": True, "chance": chance,
            "map_at_1000": {"image_to_text": image_to_text, "text_to_image": text_to_image},
            "neighbour_map": {"image_to_text": 0.2, "text_to_image": 0.3}, "neighbour_map_chance": 0.01}  # fmt: skip


def unlabelled(image_to_text, text_to_image, num_queries=100):
    return {"labels": False, "num_queries": num_queries, "neighbour_map_chance": 0.1,
            "neighbour_map": {"image_to_text": image_to_text, "text_to_image": text_to_image}}  # fmt: skip


@pytest.mark.parametrize(
    ("metrics", "baseline", "thresholds", "blessed"),
    [
        (labelled(0.5, 0.3), None, Thresholds(), True),
        (labelled(0.11, 0.12), None, Thresholds(), False),  # below 0.1 + 0.05 * 0.9
        (labelled(0.5, 0.3), labelled(0.45, 0.35), Thresholds(max_drop=0), True),  # as good
        (labelled(0.5, 0.3), labelled(0.5, 0.31), Thresholds(max_drop=0), False),
        (labelled(0.5, 0.3), labelled(0.5, 0.31), Thresholds(max_drop=0.01), True),
        (labelled(0.5, 0.3), None, Thresholds(min_score=0.41), False),
        (labelled(0.91, 0.91, chance=0.9), None, Thresholds(), True),
        (labelled(0.9, 0.9, chance=0.9), None, Thresholds(), False),
        (unlabelled(0.1, 0.3), None, Thresholds(), True),
        (unlabelled(0.12, 0.16), None, Thresholds(), False),  # below 0.1 + 0.05 * 0.9
        (unlabelled(0.3, 0.3), unlabelled(0.3, 0.32), Thresholds(max_drop=0), False),
        (unlabelled(0.3, 0.3), unlabelled(0.3, 0.32), Thresholds(max_drop=0.01), True),
        (unlabelled(0.3, 0.3), None, Thresholds(min_score=0.31), False),
    ],
)
def test_verdict(metrics, baseline, thresholds, blessed):
    assert judge(metrics, baseline, thresholds).blessed is blessed


def test_too_few_queries_bless_nothing():
    verdict = judge(unlabelled(1.0, 1.0, num_queries=10), None, Thresholds())
    assert not verdict.blessed
    assert verdict.reasons[0] == "10 queries are too few to judge a model without labels"


def test_reasons_say_what_was_compared():
    verdict = judge(labelled(0.3, 0.3), labelled(0.5, 0.5), Thresholds())
    assert verdict.reasons == [
        "mAP@1000 30.0 is at least 14.5 (chance is 10.0)",
        "mAP@1000 30.0 is below 49.5 (the blessed model's 50.0 - 0.5)",
        "neighbour mAP, which needs no labels, is 25.0 (chance is 1.0)",
    ]
    assert judge(unlabelled(0.1, 0.3), None, Thresholds()).reasons == [
        "neighbour mAP 20.0 is at least 14.5 (chance is 10.0)",
        "there is no blessed model to compare with",
    ]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("12 numbers are wanted"),
        tf.errors.InvalidArgumentError(None, None, "12 numbers are wanted\n\t [[node assert]]"),
    ],
)
def test_a_blessed_model_of_other_data_is_no_baseline(error, tmp_path, monkeypatch):
    def hash_split(*_):
        raise error

    monkeypatch.setattr(evaluator, "hash_split", hash_split)
    (tmp_path / "Format-Serving").mkdir()
    blessed, model = SimpleNamespace(id=1, uri=str(tmp_path)), SimpleNamespace(id=2)
    metrics, remarks = evaluator._measure_baseline(blessed, model, {}, "", (None, None), 0)
    assert metrics is None
    assert remarks == ["the blessed model could not be measured on these data (12 numbers are wanted)"]


def test_pairs_in_files_give_the_report_of_pairs_in_memory(tmp_path, monkeypatch):
    pairs = make_synthetic(120, seed=0)
    pairs = dataclasses.replace(pairs, ids=np.arange(120))
    columns = {name: getattr(pairs, name) for name in ("image", "text", "labels")}
    stored = dataclasses.replace(pairs, **store_rows(tmp_path / "vectors", [columns]))
    trained = train_model(pairs, override(get_preset("smoke"), {"training.epochs": 1}), tmp_path / "run")
    monkeypatch.setattr(
        evaluation_report, "read_raw_rows", lambda uri, split, rows: [{"id": f"{split} {row}"} for row in rows]
    )
    reports = []
    for data in (pairs, stored):
        query, database = data.take(np.arange(20)), data.take(np.arange(20, 120))
        metrics = evaluate_model(trained.model, query, database)
        verdict = judge(metrics, None, Thresholds())
        facts = {"title": "a run", "examples_uri": "", "run_folder": tmp_path / "run", "seed": 0}
        evaluated = evaluation_report.Evaluated(
            model=trained.model,
            metrics=metrics,
            baseline=None,
            verdict=verdict,
            remarks=[],
            query=query,
            database=database,
            **facts,
        )
        evaluation_report.write_report(tmp_path / "report.html", evaluated)
        reports.append((metrics, (tmp_path / "report.html").read_text()))
    assert reports[0] == reports[1]
