"""Time that the pipeline spends outside of training, and its peak memory, on the embedded emoji.

Runs all components once in an empty folder, like the first `make run`. The ratio is the time outside of the Trainer
divided by the time of the Trainer.

    python benchmarks/pipeline.py [--epochs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import Figure, add_json_flag, report

SCRIPT = Path(__file__).resolve().parents[1] / "pipeline" / "run_local.py"
KILOBYTE = 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, help="epochs of the training (default: the preset's)")
    add_json_flag(parser)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        epochs = ["--epochs", str(flags.epochs)] if flags.epochs else []
        started = time.monotonic()
        subprocess.run([sys.executable, str(SCRIPT), "--root", folder, *epochs], check=True, stdout=subprocess.DEVNULL)
        total = time.monotonic() - started
        (timings,) = Path(folder, "logs").glob("*.json")
        seconds = json.loads(timings.read_text(encoding="utf-8"))["seconds"]
    training = seconds["Trainer"]
    components = sum(seconds.values())
    # The maximum over all child processes: that of the pipeline itself.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * KILOBYTE
    slowest = sorted((item for item in seconds.items() if item[0] != "Trainer"), key=lambda item: -item[1])[:3]
    report(
        "pipeline: first run on emoji",
        [
            Figure("total_seconds", total, "whole command", "s", at_most=300),
            Figure("training_seconds", training, "Trainer", "s"),
            *(Figure(f"{name}_seconds", value, name, "s") for name, value in slowest),
            Figure("startup_seconds", total - components, "imports and summary", "s"),
            Figure("outside_seconds", total - training, "outside the Trainer", "s"),
            Figure("ratio", (total - training) / training, "outside / Trainer"),
            Figure("peak_memory_gb", peak / 1e9, "peak memory", "GB", at_most=4),
        ],
        flags.json,
    )


if __name__ == "__main__":
    main()
