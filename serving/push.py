"""`python -m serving.push --model DIR --model-base DIR`: exports a trained model for a server."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cmimh_tf import command_line

_EPILOG = """\
example:
  python -m serving.push --model runs/mine --model-base serving_model/cmimh
  python -m serving.server --model-base serving_model/cmimh

Each call adds a version, which a running server loads by itself. The exported signatures accept vectors. Models that
accept pictures and captions are exported by the pipeline, together with the conversion to vectors.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Checks the flags before TensorFlow is imported, then exports."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.push",
        description="Exports a trained model as the next version for a server.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, type=command_line.path, metavar="DIR", help="folder of a finished run"
    )
    parser.add_argument(
        "--model-base", required=True, type=command_line.path, metavar="DIR", help="folder of the versions"
    )
    flags = parser.parse_args(arguments)
    if not (flags.model / "model.keras").is_file():
        parser.error(f"--model must be the folder of a finished run, with a model.keras. Received: {flags.model}.")
    if flags.model_base.exists() and not flags.model_base.is_dir():
        parser.error(f"--model-base must be a folder. Received: {flags.model_base}, a file.")
    command_line.run(push, flags)


def push(arguments: argparse.Namespace) -> None:
    """Exports the model, with the metrics and the profile of the run if there are any."""
    from cmimh_tf.files import read_text
    from cmimh_tf.training.run_folder import RunFolder, load_model
    from serving.export import export_model, next_version, remove_leftovers

    model = load_model(arguments.model)
    folder = RunFolder(arguments.model)
    assets = {file.name: read_text(file) for file in (folder.metrics, folder.profile) if file.is_file()}
    remove_leftovers(arguments.model_base)
    version = next_version(arguments.model_base)
    export_model(model, version, extra_assets=assets)
    print(f"version {version.name}, {model.config.code_length} bits: {version}")


if __name__ == "__main__":
    main()
