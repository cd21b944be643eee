"""The command `python -m cmimh_tf.data`: `check` examines data before training, `prepare` builds a data set."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cmimh_tf import command_line
from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.sources import TFDS_PREFIX, check_exists, open_records

if TYPE_CHECKING:
    from cmimh_tf.data.check import SourceCheck

_EPILOG = """\
examples:
  python -m cmimh_tf.data check pairs.csv
  python -m cmimh_tf.data check 'shards/*.tar' --json
  python -m cmimh_tf.data check new.npz --model runs/mine
  python -m cmimh_tf.data prepare mirflickr25k --manual-dir ~/downloads

PATH is a table of pictures and captions (.csv, .jsonl, .parquet), a folder with one, WebDataset shards (.tar), vectors
(.npz), TFRecords, or a name: emoji, synthetic, mirflickr25k, nuswide, mscoco, tfds:NAME.
"""


def main() -> None:
    """Parses the flags and runs the command."""
    parser = argparse.ArgumentParser(
        prog="python -m cmimh_tf.data",
        description="Checks data before training, or prepares a published data set.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check",
        help="report what is in the data; exit with 1 if training could not start, or if they do not fit --model",
    )
    check.add_argument("path", metavar="PATH", help="a path or a name, see below")
    check.add_argument(
        "--model",
        type=command_line.path,
        metavar="MODEL",
        help="also compare the data with those of a model's training: a run folder or an exported model",
    )
    check.add_argument("--sheet", type=Path, metavar="FILE", help="contact sheet (default: NAME-contact-sheet.png)")
    check.add_argument("--no-sheet", action="store_true", help="do not draw a contact sheet")
    check.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the split and of the pairs on the contact sheet"
    )
    check.add_argument("--json", action="store_true", help="print JSON")
    prepare = commands.add_parser("prepare", help="convert the official files of a data set to TFDS's format")
    prepare.add_argument("name", metavar="NAME", help="such as nuswide, mirflickr25k/recall_one, tfds:coco_captions")
    prepare.add_argument("--manual-dir", type=Path, metavar="DIR", help="folder of the unpacked official files")
    prepare.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="folder for the result (default: ~/tensorflow_datasets)"
    )
    prepare.add_argument(
        "--beam-options",
        metavar="OPTIONS",
        help="read with Apache Beam, such as runner=FlinkRunner,parallelism=8 (default: one pair after the other)",
    )
    arguments = parser.parse_args()
    if arguments.command == "check":
        # Before `run` imports TensorFlow, which takes seconds.
        try:
            check_exists(arguments.path)
            if arguments.model is not None:
                from cmimh_tf.drift import load_profile

                load_profile(arguments.model)
        except (FileNotFoundError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
    command_line.run(run_check if arguments.command == "check" else run_prepare, arguments)


def run_check(arguments: argparse.Namespace) -> int:
    """Reads all records, prints the findings, compares them with a model's training, and draws the contact sheet."""
    from cmimh_tf.data.check import check_source
    from cmimh_tf.data.check_report import to_json, to_lines

    reader = open_records(arguments.path)
    found = check_source(reader, arguments.seed)
    drift = None
    if arguments.model is not None:
        from cmimh_tf.drift import check_drift

        drift = check_drift(reader, arguments.model, name=arguments.path, seed=arguments.seed)
    if not arguments.json:
        # With a model, the question is not whether training can start, which the last line of the findings says.
        lines = to_lines(found) if drift is None else [*to_lines(found)[:-1], *drift.to_lines()]
        print("\n".join(lines), flush=True)
    sheet = None
    if found.samples and not arguments.no_sheet:
        sheet = _draw_sheet(found, arguments.sheet or Path(f"{found.name}-contact-sheet.png"))
    if arguments.json:
        content = {**to_json(found), "contact_sheet": None if sheet is None else str(sheet)}
        if drift is not None:
            content["drift"] = drift.to_json()
        print(json.dumps(content, indent=2, ensure_ascii=False))
    elif sheet is not None:
        print(f"contact sheet: {sheet}")
    if drift is not None:
        return 0 if drift.fits and not found.num_problems else 1
    return 0 if found.can_train else 1


def _draw_sheet(found: "SourceCheck", path: Path) -> Path | None:
    """Draws the sheet and returns its path. An error is only printed: the findings must still be reported."""
    from cmimh_tf.data.check_report import draw_contact_sheet

    title = f"{found.name}: {len(found.samples)} of {found.num_records:,} pairs"
    try:
        draw_contact_sheet(path, found.samples, found.classes, title)
    except (DataError, OSError) as error:
        print(f"no contact sheet: {error}", file=sys.stderr)
        return None
    return path


def run_prepare(arguments: argparse.Namespace) -> None:
    """Builds the data set and prints its folder."""
    from cmimh_tf.data.readers.tfds import make_builder

    data_dir = None if arguments.data_dir is None else str(arguments.data_dir)
    builder = make_builder(arguments.name.removeprefix(TFDS_PREFIX), data_dir)
    import tensorflow_datasets as tfds

    config = tfds.download.DownloadConfig(manual_dir=arguments.manual_dir)
    if arguments.beam_options:
        from apache_beam.options.pipeline_options import PipelineOptions

        config.beam_options = PipelineOptions([f"--{option}" for option in arguments.beam_options.split(",")])
    builder.download_and_prepare(download_config=config)
    sizes = ", ".join(f"{name} {split.num_examples:,}" for name, split in builder.info.splits.items())
    print(f"{sizes}\nprepared in {builder.data_dir}")


if __name__ == "__main__":
    main()
