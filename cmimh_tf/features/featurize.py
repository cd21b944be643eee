"""From a source of pictures and captions to vectors, by Beam: shards of tf.Examples, or one .npz made of such shards.

Shards are there in full or not at all, and those that are there are not computed again. No step holds more than some
batches of pairs in memory, besides their ids.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from cmimh_tf.data.readers.official_splits import split_marks
from cmimh_tf.data.records import DataError, PairReader, RecordIndex, open_records
from cmimh_tf.data.vector_file import write_vectors
from cmimh_tf.features.beam_run import run_on_beam
from cmimh_tf.features.progress import PairProgress
from cmimh_tf.features.registry import image_features_version, text_features_version
from cmimh_tf.features.shard_folder import ShardFolder
from cmimh_tf.features.shard_plan import Portion, plan_shards
from cmimh_tf.features.shard_writer import ShardWriter, vector_widths
from cmimh_tf.features.worker_notes import WorkerNotes

PAIRS_PER_SHARD = 512
FROM_THE_DATA = "vectors of the data"


def featurize(
    reader: PairReader,
    out: Path,
    *,
    image_features: str,
    text_features: str,
    pairs_per_shard: int = PAIRS_PER_SHARD,
    overwrite: bool = False,
) -> int:
    """Writes the vectors of all pairs, with ids, labels, captions and official splits where there are some.

    Vectors that the source has already are taken as they are.

    Args:
        reader: of `open_records`.
        out: a folder for shards and pairs.json; or an .npz, whose shards are in `<out>.shards` until it is complete.
        image_features, text_features: names of `cmimh_tf.features.registry`.
        pairs_per_shard: about so many; what a killed run loses at most.
        overwrite: remove shards of other data or features that are in the folder.

    Returns:
        The number of pairs.

    Raises:
        DataError: naming the record that is wrong.
        ValueError: for features that are fitted, or a folder that holds something else.
    """
    index = reader.index()
    widths = vector_widths(next(iter(reader)))
    image_features = "" if "image" in widths else image_features
    text_features = "" if "text" in widths else text_features
    if text_features == "bag_of_words":
        raise ValueError(
            "`text_features` must not be fitted here, where no training pairs are known: `pipeline/run_local.py` fits "
            "bag_of_words. Received: 'bag_of_words'."
        )
    portions = plan_shards(index, pairs_per_shard)
    identity = {
        "data": reader.fingerprint(),
        "image_features": image_features_version(image_features) if image_features else FROM_THE_DATA,
        "text_features": text_features_version(text_features) if text_features else FROM_THE_DATA,
        "pairs_per_shard": pairs_per_shard,
    }
    to_npz = out.suffix.lower() == ".npz"
    folder = ShardFolder(out.with_name(f"{out.name}.shards") if to_npz else out)
    with folder.claimed(identity, overwrite=overwrite or to_npz):
        writer = ShardWriter(reader, folder.path, image_features, text_features, widths)
        _compute(writer, folder, portions)
        folder.complete(identity, _facts(folder, index, portions, identity))
    if to_npz:
        write_vectors(open_records(str(folder.path)), out)
        shutil.rmtree(folder.path)
    return int(index.is_used().sum())


def _compute(writer: ShardWriter, folder: ShardFolder, portions: list[Portion]) -> None:
    shards = [shard for portion in portions for shard in portion.shards]
    progress = PairProgress(sum(shard.num_pairs for shard in shards))
    progress.skip(sum(shard.num_pairs for shard in shards if folder.has(shard)))
    unfinished = folder.unfinished(portions)
    if not unfinished:
        return
    notes = WorkerNotes(folder.path)
    try:
        with notes.shown_by(progress):
            run_on_beam(writer.write, unfinished)
    except Exception as error:
        if sentence := notes.error():
            raise DataError(sentence) from error
        raise


def _facts(
    folder: ShardFolder, index: RecordIndex, portions: list[Portion], identity: dict[str, Any]
) -> dict[str, Any]:
    """What pairs.json says of finished shards."""
    shards = [shard for portion in portions for shard in portion.shards]
    first = open_records(str(folder.path / shards[0].name))
    # `survey`, not `index`: a shard may hold only queries, or none, which is wrong in data but not in a part of them.
    widths = vector_widths(next(first.read(*first.survey().blocks[0])))
    marks = split_marks(index)
    return {
        "pairs": sum(shard.num_pairs for shard in shards),
        "shards": len(shards),
        **{name: {"features": identity[f"{name}_features"], "width": widths[name]} for name in ("image", "text")},
        "labels": widths.get("labels", 0),
        "classes": index.classes,
        "splits": None if marks is None else dict(Counter(marks[index.is_used()].tolist())),
    }
