"""IndexBuilder: builds the search index of all pairs with the pushed model, under the number of the model's version."""

import functools
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_transform as tft
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.artifact import Artifact
from tfx.types.standard_artifacts import Examples, ModelRun, PushedModel, TransformGraph

from cmimh_tf.files import remove_folder
from cmimh_tf.search import open_index
from cmimh_tf.search.adapters import DataSource, SourceItem
from cmimh_tf.search.building import build_index
from cmimh_tf.search.models import ModelDescription, describe_model
from cmimh_tf.training.run_folder import load_model
from pipeline.examples import DATABASE, QUERY, load_transformed, split_files

# The packed image code and text code of each pair, by its id.
Codes = dict[str, tuple[np.ndarray, np.ndarray]]


class SearchIndex(Artifact):
    """Where the index is, in the custom property `address`; "" if none was built."""

    TYPE_NAME = "SearchIndex"


@component
def IndexBuilder(
    transformed_examples: InputArtifact[Examples],
    transform_graph: InputArtifact[TransformGraph],
    model_run: InputArtifact[ModelRun],
    pushed_model: InputArtifact[PushedModel],
    index: OutputArtifact[SearchIndex],
    source: Parameter[str],
    index_directory: Parameter[str],
) -> None:
    """Publishes `index_directory`/<version> if the model was pushed.

    Args:
        transformed_examples: the pairs after Transform, which the trained model hashes.
        transform_graph: the fitted preprocessing.
        model_run: the trained model. SavedModelCheck has compared its codes with those of the pushed model.
        pushed_model: the output of Pusher.
        index: records where the index is.
        source: the data that the pairs were read from, for captions, pictures and metadata.
        index_directory: the folder of versions.
    """
    address = ""
    if pushed_model.get_int_custom_property("pushed") == 1:
        described = describe_model(pushed_model.get_string_custom_property("pushed_destination"))
        folder = Path(index_directory) / pushed_model.get_string_custom_property("pushed_version")
        codes = functools.partial(codes_by_id, transformed_examples.uri, transform_graph.uri, model_run.uri)
        address = str(publish(folder, described, DataSource(source), codes))
    index.set_string_custom_property("address", address)


def codes_by_id(examples_uri: str, graph_uri: str, run_uri: str) -> Codes:
    """The codes of all pairs that went through Transform, by the model of a run."""
    spec = tft.TFTransformOutput(graph_uri).transformed_feature_spec()
    model = load_model(run_uri)
    codes: Codes = {}
    for split in (DATABASE, QUERY):
        pairs = load_transformed(split_files(examples_uri, split), spec)
        assert pairs.ids is not None
        of_split = zip(model.hash_images(pairs.image), model.hash_texts(pairs.text), strict=True)
        codes.update(zip(pairs.ids.tolist(), of_split, strict=True))
    return codes


def publish(
    folder: Path,
    described: ModelDescription,
    source: DataSource,
    make_codes: Callable[[], Codes],
) -> Path:
    """Builds the index in one step. One that is there already stays, unless it is of another model or other data.

    Args:
        folder: of the new index.
        described: the model that made the codes.
        source: the pairs.
        make_codes: makes the codes; not called if the index is there already.

    Returns:
        `folder`.
    """
    if folder.exists():
        with open_index(folder) as existing:
            header = existing.header
        is_same_model = header.model is not None and header.model.fingerprint == described.stamp.fingerprint
        if is_same_model and source.fingerprint() in [known["fingerprint"] for known in header.sources]:
            return folder
        remove_folder(folder)
    codes = make_codes()

    def look_up(items: Sequence[SourceItem]) -> dict[str, Any]:
        images, texts = zip(*(codes[item.id] for item in items), strict=True)
        return {"image_codes": np.stack(images), "text_codes": np.stack(texts)}

    build_index(str(folder), described, source, hash_batch=look_up).close()
    return folder


def search_command(address: str) -> str:
    """A command that searches the newest index of a folder for the first item's caption, or from its id.

    Captions need a model that takes them.
    """
    with open_index(address) as index:
        [item] = index.sample(1)
        stamp = index.header.model
    assert stamp is not None
    takes_captions = "text" in describe_model(stamp.path).takes_raw
    query = ["--text", item.caption] if takes_captions and item.caption else ["--id", item.id]
    return shlex.join(["python", "-m", "cmimh_tf.search", "--index", address, *query])
