"""Gathers what the report of one evaluation shows: measures, curves, and what real queries find."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from cmimh_tf.data.pairs import PairedData
from cmimh_tf.files import write_text
from cmimh_tf.metrics.retrieval import ranked_neighbours
from cmimh_tf.model import CMIMH
from cmimh_tf.reports.model_report import Item, ReportContent, Retrieved, render_report
from cmimh_tf.training.evaluation import hash_pairs
from cmimh_tf.training.run_folder import RunFolder
from pipeline.examples import CAPTION, DATABASE, ID, IMAGE_BYTES, QUERY, read_raw_rows

if TYPE_CHECKING:
    from pipeline.components.evaluator import Verdict

_NUM_QUERIES = 6
_NUM_PICTURES = 8
_NUM_TEXTS = 5
_THUMBNAIL_SIZE = 112
_SAMPLED_ROWS = 2000


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation knows of a model.

    Attributes:
        title: the heading.
        model: the trained model.
        metrics: of `evaluate_model`.
        baseline: the measures of the blessed model, or None.
        verdict: whether it is blessed.
        remarks: what to know about the comparison.
        query, database: the transformed pairs.
        examples_uri: the raw ones.
        run_folder: the training's folder.
        seed: of the order of ties, and of which queries are shown.
    """

    title: str
    model: CMIMH
    metrics: dict[str, Any]
    baseline: dict[str, Any] | None
    verdict: Verdict
    remarks: list[str]
    query: PairedData
    database: PairedData
    examples_uri: str
    run_folder: Path
    seed: int


def write_report(path: Path, evaluated: Evaluated) -> None:
    """Writes report.html, complete or not at all."""
    model, metrics, database = evaluated.model, evaluated.metrics, evaluated.database
    sample = database.take(np.arange(min(_SAMPLED_ROWS, len(database))))
    probs = model({"image": np.asarray(sample.image), "text": np.asarray(sample.text)})
    codes = hash_pairs(model, sample)
    problems = evaluated.run_folder / "problems.json"
    text_queries, image_queries = retrieved_examples(evaluated)
    content = ReportContent(
        title=evaluated.title,
        metrics=metrics,
        baseline=evaluated.baseline,
        blessed=evaluated.verdict.blessed,
        reasons=[*evaluated.verdict.reasons, *evaluated.remarks],
        history=RunFolder(evaluated.run_folder).read_history(),
        probs={modality: probs[f"{modality}_probs"].numpy() for modality in ("image", "text")},
        codes={"image": codes.image_codes, "text": codes.text_codes},
        text_queries=text_queries,
        image_queries=image_queries,
        config=model.config.to_dict(),
        problems=json.loads(problems.read_text(encoding="utf-8")) if problems.exists() else (),
        facts={
            "bits": str(model.config.code_length),
            "seed": str(model.config.seed),
            "queries": f"{metrics['num_queries']:,}",
            "database": f"{metrics['num_database']:,}",
        },
    )
    write_text(path, render_report(content))


def retrieved_examples(evaluated: Evaluated) -> tuple[list[Retrieved], list[Retrieved]]:
    """Some queries with what they find: texts with pictures, and pictures with texts.

    With labels the database is searched. Without, the queries themselves are: only there is the right answer known.
    """
    query = evaluated.query
    split, target = (DATABASE, evaluated.database) if query.labels is not None else (QUERY, query)
    asked, searched = hash_pairs(evaluated.model, query), hash_pairs(evaluated.model, target)
    chosen = np.random.default_rng(evaluated.seed).permutation(len(query))[: 2 * _NUM_QUERIES]
    asked_rows = dict(zip(chosen.tolist(), read_raw_rows(evaluated.examples_uri, QUERY, chosen), strict=True))
    found = []
    for rows, modality, other, count in (
        (chosen[::2], "text", "image", _NUM_PICTURES),
        (chosen[1::2], "image", "text", _NUM_TEXTS),
    ):
        nearest, distances = ranked_neighbours(
            asked.codes(modality)[rows], searched.codes(other), count, seed=evaluated.seed
        )
        wanted = np.unique(nearest)
        raw = dict(zip(wanted.tolist(), read_raw_rows(evaluated.examples_uri, split, wanted), strict=True))
        found.append(
            [
                Retrieved(
                    _item(asked_rows[row], modality),
                    [
                        _item(raw[hit], other, is_relevant(query, target, row, hit), int(distance))
                        for hit, distance in zip(hits.tolist(), row_distances.tolist(), strict=True)
                    ],
                )
                for row, hits, row_distances in zip(rows.tolist(), nearest, distances, strict=True)
            ]
        )
    return found[0], found[1]


def is_relevant(query: PairedData, database: PairedData, row: int, hit: int) -> bool:
    """Whether two pairs share a label; without labels, whether they are one pair."""
    if query.labels is None or database.labels is None:
        return row == hit
    return bool((query.labels[[row]] & database.labels[[hit]]).any())


def thumbnail(picture: bytes) -> str:
    """A small JPEG of an encoded picture, as a data URI."""
    decoded = tf.io.decode_image(picture, channels=3, expand_animations=False)
    size = max(decoded.shape[:2])
    if size > _THUMBNAIL_SIZE:
        shape = [max(1, round(side * _THUMBNAIL_SIZE / size)) for side in decoded.shape[:2]]
        resized = tf.image.resize(decoded, shape, antialias=True)
        decoded = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
    encoded = tf.io.encode_jpeg(decoded, quality=85).numpy()
    return "data:image/jpeg;base64," + base64.b64encode(encoded).decode("ascii")


def _item(row: dict[str, Any], modality: str, relevant: bool | None = None, distance: int | None = None) -> Item:
    text = row.get(CAPTION) or row[ID]
    picture = thumbnail(row[IMAGE_BYTES]) if modality == "image" and IMAGE_BYTES in row else None
    return Item(text, picture, relevant, distance)
