"""The command that hashes: `python -m cmimh_tf.hash --model DIR --data FILE --out codes.npz`."""

import argparse
import zipfile
from pathlib import Path

from cmimh_tf import command_line

_EPILOG = """\
example:
  python -m cmimh_tf.hash --model runs/mine --data new.npz --out codes.npz

The file contains `image_codes` and `text_codes`, uint8 [pairs, bits / 8], packed with the least significant bit first,
and `ids`. Hamming distance: numpy.unpackbits(a ^ b, axis=-1).sum(-1).
"""


def main() -> None:
    """Parses the flags and runs the command."""
    parser = argparse.ArgumentParser(
        prog=command_line.program("cmimh_tf.hash"),
        description="Writes the binary codes of images and texts.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, type=command_line.path, metavar="DIR", help="folder of a finished run"
    )
    parser.add_argument(
        "--data", required=True, type=command_line.not_empty, metavar="FILE", help=command_line.DATA_HELP
    )
    parser.add_argument("--out", required=True, type=command_line.path, metavar="FILE", help="the .npz to write")
    command_line.run(hash_file, parser.parse_args())


def hash_file(arguments: argparse.Namespace) -> None:
    """Hashes part by part; codes and ids are in memory, vectors only those of one part."""
    from cmimh_tf.training.run_folder import load_model, model_file

    model_file(arguments.model)
    command_line.check_data(arguments.data)
    check_output(arguments.out)
    command_line.start_tensorflow()
    import numpy as np

    from cmimh_tf.files import write_npz

    model = load_model(arguments.model)
    columns: dict[str, list[np.ndarray]] = {"image_codes": [], "text_codes": [], "ids": []}
    num_pairs = 0
    for part in command_line.load_data_in_parts(arguments.data, model.config.seed):
        columns["image_codes"].append(model.hash_images(part.image))
        columns["text_codes"].append(model.hash_texts(part.text))
        rows = np.arange(num_pairs, num_pairs + len(part))
        columns["ids"].append(rows.astype(str) if part.ids is None else part.ids)
        num_pairs += len(part)
    write_npz(arguments.out, **{name: np.concatenate(parts) for name, parts in columns.items()})
    print(f"{num_pairs:,} pairs, {model.config.code_length} bits each: {arguments.out}")


def check_output(path: Path) -> None:
    """Raises an error if `path` exists and holds anything but codes."""
    if not path.exists():
        return
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if "image_codes.npy" in archive.namelist():
                return
    raise ValueError(
        f"`--out` must be a new file, or one with codes to replace. Received: {path}, which holds something else."
    )


if __name__ == "__main__":
    main()
