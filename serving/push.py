"""The command that exports a trained model for a server: `python -m serving.push --model DIR --model-base DIR`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cmimh_tf import command_line

_EPILOG = """\
example:
  python -m serving.push --model runs/mine --model-base serving_model/cmimh
  python -m serving.server --model-base serving_model/cmimh

Each call adds a version; a server that looks at the folder takes it up while it runs. The signatures take vectors. A
model that takes pictures and captions comes out of the pipeline, which knows how they became vectors.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the flags and runs."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.push",
        description="Exports a trained model as the next version that a server will take up.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="folder of a finished run")
    parser.add_argument("--model-base", required=True, type=Path, metavar="DIR", help="folder of the versions")
    command_line.run(push, parser.parse_args(arguments))


def push(arguments: argparse.Namespace) -> None:
    """Loads and exports, with the measures of the run if there are any."""
    from cmimh_tf.training.run_folder import RunFolder, load_model
    from serving.export import export_model, next_version

    model = load_model(arguments.model)
    metrics = RunFolder(arguments.model).metrics
    assets = {metrics.name: metrics.read_bytes()} if metrics.is_file() else {}
    version = next_version(arguments.model_base)
    export_model(model, version, extra_assets=assets)
    print(f"version {version.name}, {model.config.code_length} bits: {version}")


if __name__ == "__main__":
    main()
