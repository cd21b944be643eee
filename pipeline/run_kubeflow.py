"""Compiles the pipeline for Kubeflow Pipelines v2 or Vertex AI: `python pipeline/run_kubeflow.py --help`."""

import argparse
import sys
import warnings
from pathlib import Path

if __name__ == "__main__":
    # Python puts the script's folder first on the path, but `pipeline` must be imported from the folder above.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cmimh_tf import command_line

_EPILOG = """\
example:
  python pipeline/run_kubeflow.py --data /data/pairs.npz --root gs://bucket/cmimh --image registry/cmimh:1 \\
      --beam runner=DataflowRunner --beam project=PROJECT --output cmimh.json

Needs Python 3.11 and kfp-pipeline-spec, which the lock contains. The image must contain this project and its locked
dependencies. --data must be a path that all containers can read, such as a mounted volume.
"""


def main() -> None:
    """Parses the flags and compiles."""
    parser = argparse.ArgumentParser(
        prog="python pipeline/run_kubeflow.py",
        description="Writes the specification of the pipeline, for Kubeflow Pipelines v2 or Vertex AI.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        required=True,
        type=command_line.not_empty,
        metavar="PATH",
        help="path of the pairs in the containers, or the name of a data set",
    )
    parser.add_argument(
        "--root",
        required=True,
        type=command_line.not_empty,
        metavar="URI",
        help="folder for artifacts, such as gs://bucket/cmimh",
    )
    parser.add_argument(
        "--serving", metavar="URI", help="folder to push models to (default: <root>/serving_model/cmimh)"
    )
    parser.add_argument("--image", required=True, metavar="NAME", help="container image that contains this project")
    parser.add_argument("--name", default="cmimh", help="name of the pipeline (default: cmimh)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("cmimh_pipeline.json"),
        metavar="FILE",
        help="file to write (default: cmimh_pipeline.json)",
    )
    parser.add_argument(
        "--beam", action="append", default=[], metavar="KEY=VALUE", help="flag for Apache Beam, without -- (repeatable)"
    )
    command_line.add_config_flags(parser)
    command_line.run(compile_pipeline, parser.parse_args())


def compile_pipeline(arguments: argparse.Namespace) -> None:
    """Writes the specification."""
    config = command_line.config_from_flags(arguments)
    # Google's libraries warn about the end of support for Python versions.
    warnings.filterwarnings("ignore", category=FutureWarning)
    from pipeline.create_pipeline import PipelineOptions, create_pipeline

    try:
        from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as kubeflow
    except ImportError as error:
        raise ImportError(
            f"{error}. Install with: .venv/bin/uv pip install --no-deps kfp-pipeline-spec==0.6.0 (Python 3.11)"
        ) from error

    pipeline = create_pipeline(
        arguments.name,
        arguments.root,
        arguments.serving or f"{arguments.root.rstrip('/')}/serving_model/cmimh",
        PipelineOptions(source=arguments.data, config=config),
        beam_pipeline_args=[f"--{argument}" for argument in arguments.beam],
    )
    runner = kubeflow.KubeflowV2DagRunner(
        config=kubeflow.KubeflowV2DagRunnerConfig(default_image=arguments.image),
        output_dir=str(arguments.output.absolute().parent),
        output_filename=arguments.output.name,
    )
    runner.run(pipeline, write_out=True)
    print(f"specification: {arguments.output}")


if __name__ == "__main__":
    main()
