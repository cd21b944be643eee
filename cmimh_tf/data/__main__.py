"""The command that looks through data before they are trained on: `python -m cmimh_tf.data check PATH`."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cmimh_tf import command_line

if TYPE_CHECKING:
    from cmimh_tf.data.source_check import SourceCheck

_EPILOG = """\
examples:
  python -m cmimh_tf.data check pairs.csv
  python -m cmimh_tf.data check 'shards/*.tar' --json
  python -m cmimh_tf.data prepare mirflickr25k --manual-dir ~/downloads

PATH is a table of pictures and captions (.csv, .jsonl, .parquet), a folder with one, WebDataset shards (.tar), vectors
(.npz), TFRecords, or a name: emoji, synthetic, mirflickr25k, nuswide, mscoco, tfds:NAME.
"""


def main() -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python -m cmimh_tf.data",
        description="Looks through data, or prepares a published data set.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="say what is in the data; exit 1 if training could not start")
    check.add_argument("path", metavar="PATH", help="a path or a name, see below")
    check.add_argument("--sheet", type=Path, metavar="FILE", help="contact sheet (default: NAME-contact-sheet.png)")
    check.add_argument("--no-sheet", action="store_true", help="draw no contact sheet")
    check.add_argument("--seed", type=int, default=0, metavar="N", help="of the split and of the pairs on the sheet")
    check.add_argument("--json", action="store_true", help="print JSON")
    prepare = commands.add_parser("prepare", help="turn the official files of a data set into TFDS's format")
    prepare.add_argument("name", metavar="NAME", help="such as nuswide, mirflickr25k/recall_one, tfds:coco_captions")
    prepare.add_argument("--manual-dir", type=Path, metavar="DIR", help="where the official files are unpacked")
    prepare.add_argument("--data-dir", type=Path, metavar="DIR", help="where to (default: ~/tensorflow_datasets)")
    prepare.add_argument(
        "--beam-options",
        metavar="OPTIONS",
        help="read on Apache Beam, such as runner=FlinkRunner,parallelism=8 (default: one pair after the other)",
    )
    arguments = parser.parse_args()
    command_line.run(run_check if arguments.command == "check" else run_prepare, arguments)


def run_check(arguments: argparse.Namespace) -> int:
    """Reads all records, prints what was found, draws the sheet."""
    from cmimh_tf.data.check_report import to_json, to_lines
    from cmimh_tf.data.records import open_records
    from cmimh_tf.data.source_check import check_source

    found = check_source(open_records(arguments.path), arguments.seed)
    if not arguments.json:
        print("\n".join(to_lines(found)), flush=True)
    sheet = None
    if found.samples and not arguments.no_sheet:
        sheet = _draw_sheet(found, arguments.sheet or Path(f"{found.name}-contact-sheet.png"))
    if arguments.json:
        content = {**to_json(found), "contact_sheet": None if sheet is None else str(sheet)}
        print(json.dumps(content, indent=2, ensure_ascii=False))
    elif sheet is not None:
        print(f"contact sheet: {sheet}")
    return 0 if found.can_train else 1


def _draw_sheet(found: "SourceCheck", path: Path) -> Path | None:
    """Draws the sheet and returns its path, or tells why there is none: what was found must not be lost with it."""
    from cmimh_tf.data.contact_sheet import draw_contact_sheet
    from cmimh_tf.data.records import DataError

    title = f"{found.name}: {len(found.samples)} of {found.num_records:,} pairs"
    try:
        draw_contact_sheet(path, found.samples, found.classes, title)
    except (DataError, OSError) as error:
        print(f"no contact sheet: {error}", file=sys.stderr)
        return None
    return path


def run_prepare(arguments: argparse.Namespace) -> None:
    """Builds the data set and says where it is."""
    from cmimh_tf.data.readers.open_reader import TFDS_PREFIX
    from cmimh_tf.data.readers.tfds_data import make_builder

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
