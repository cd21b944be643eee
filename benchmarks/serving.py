"""Throughput of our server for single-row requests, compared with direct calls of the SavedModel.

Direct: `hash_image` of the exported model on batches of 64 rows, in this process. Served: another process sends one row
per request over 32 connections on 127.0.0.1, as base64 of float32 and as JSON numbers. At half of the reached rate, the
99th percentile of the latency is compared with the median. The processor time per row explains the difference: model,
HTTP and load share the same cores.

    python benchmarks/serving.py [--preset default] [--image-width 1280] [--json FILE]
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
# This folder is first on the path, and this file has the name of the package.
sys.path = [str(ROOT), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT / "benchmarks")]
sys.path.append(str(ROOT / "benchmarks"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
from report import Figure, add_json_flag, report  # noqa: E402

DIRECT_ROWS = 64
NUM_PAYLOADS = 64
STARTUP_SECONDS = 180.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="default", help="preset of the model, which is not trained (%(default)s)")
    parser.add_argument("--image-width", type=int, default=1280, help="width of the image vectors (%(default)s)")
    parser.add_argument("--text-width", type=int, default=384, help="width of the text vectors (%(default)s)")
    parser.add_argument("--connections", type=int, default=32, help="of the client (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="per measurement (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="alternations of direct and served (%(default)s)")
    parser.add_argument("--server-flag", action="append", default=[], help="passed to the server (repeatable)")
    add_json_flag(parser)
    flags = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "cmimh"
        rows = export(flags.preset, flags.image_width, flags.text_width, base / "1")
        direct_rates, served, json_served = [], [], []
        binary = [predict_request("hash_image_float_bytes", {"b64": b64(row)}) for row in rows]
        numbers = [predict_request("hash_image", row.tolist()) for row in rows]
        call = load_direct(base / "1")
        with running_server(base, flags.server_flag) as (port, process_id):
            generate(folder, port, binary, flags.connections, 1.0)
            for _ in range(flags.repeats):
                direct_rates.append(direct_rate(call, rows, flags.seconds))
                used = processor_seconds(process_id)
                served.append(generate(folder, port, binary, flags.connections, flags.seconds))
                served[-1]["server_cpu"] = processor_seconds(process_id) - used
            rate = median(result["rate"] for result in served)
            half = generate(folder, port, binary, flags.connections, flags.seconds, rate=rate / 2)
            json_served = generate(folder, port, numbers, flags.connections, flags.seconds)
        errors = sum(result["errors"] for result in (*served, half, json_served))
    direct = median(rate for rate, _ in direct_rates)

    def microseconds(name: str) -> float:
        return median(1e6 * result[name] / result["count"] for result in served)

    report(
        f"serving: {flags.preset} preset, {flags.image_width} floats per row, {flags.connections} connections, "
        f"{len(os.sched_getaffinity(0))} cores",
        [
            Figure("direct_rows_per_second", direct, f"SavedModel, batches of {DIRECT_ROWS}", "rows/s"),
            Figure("served_rows_per_second", rate, "served, one row per request, base64", "rows/s"),
            Figure("json_rows_per_second", json_served["rate"], "served, one row per request, JSON numbers", "rows/s"),
            Figure("ratio", direct / rate, "direct / served", at_most=3),
            Figure("half_load_p50_ms", 1000 * half["p50"], "median latency at half load", "ms"),
            Figure("half_load_p99_ms", 1000 * half["p99"], "99th percentile at half load", "ms"),
            Figure("tail_ratio", half["p99"] / half["p50"], "99th percentile / median", at_most=10),
            Figure("direct_cpu", 1e6 * median(cpu for _, cpu in direct_rates), "processor time, direct", "us/row"),
            Figure("server_cpu", microseconds("server_cpu"), "processor time, server", "us/row"),
            Figure("load_cpu", microseconds("cpu"), "processor time, load generator", "us/row"),
            Figure("errors", errors, "answers other than 200", at_most=0),
        ],
        flags.json,
    )


def export(preset: str, image_width: int, text_width: int, directory: Path) -> np.ndarray:
    """Exports a model with random weights, and returns rows to hash."""
    from cmimh_tf import CMIMH, get_preset
    from serving.export import export_model

    rng = np.random.default_rng(0)
    model = CMIMH(config=get_preset(preset), image_units=image_width, text_units=text_width)
    model.adapt(rng.standard_normal((256, image_width)), rng.standard_normal((256, text_width)))
    export_model(model, directory)
    return rng.standard_normal((NUM_PAYLOADS, image_width)).astype(np.float32)


def load_direct(directory: Path):
    """The `hash_image` signature in this process."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(directory))
    function = loaded.signatures["hash_image"]

    def call(batch: np.ndarray) -> np.ndarray:
        # The loaded model is freed without a reference to it.
        assert loaded is not None
        return function(image=tf.constant(batch))["code_bytes"].numpy()

    return call


def direct_rate(call, rows: np.ndarray, seconds: float) -> tuple[float, float]:
    """Rows per second in batches of `DIRECT_ROWS`, and seconds of processor time per row."""
    batch = np.resize(rows, (DIRECT_ROWS, rows.shape[1]))
    for _ in range(5):
        call(batch)
    start, cpu = time.perf_counter(), time.process_time()
    count = 0
    while time.perf_counter() - start < seconds:
        call(batch)
        count += DIRECT_ROWS
    return count / (time.perf_counter() - start), (time.process_time() - cpu) / count


def processor_seconds(process_id: int) -> float:
    """The processor time of a process so far, in all its threads."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def b64(row: np.ndarray) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode("ascii")


def predict_request(signature: str, instance: object) -> bytes:
    """The HTTP request for one row."""
    body = json.dumps({"signature_name": signature, "instances": [instance]}).encode()
    head = f"POST /v1/models/cmimh:predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@contextlib.contextmanager
def running_server(base: Path, server_flags: list[str]) -> Iterator[tuple[int, int]]:
    """Runs `python -m serving.server` on a free port; yields the port and the process id."""
    command = [sys.executable, "-m", "serving.server", "--model-base", str(base), "--rest-port", "0"]
    process = subprocess.Popen(
        [*command, "--grpc-port", "-1", *server_flags], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + STARTUP_SECONDS
        for line in process.stderr:
            if '"listening"' in line:
                yield json.loads(line)["rest_port"], process.pid
                break
            if time.monotonic() > deadline:
                raise TimeoutError("The server did not start in time.")
        else:
            raise RuntimeError("The server ended before it listened.")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def generate(
    folder: str, port: int, requests: list[bytes], connections: int, seconds: float, rate: float | None = None
) -> dict:
    """Runs the load generator in its own process."""
    arguments = {
        "port": port,
        "requests": [request.decode("latin-1") for request in requests],
        "connections": connections,
        "seconds": seconds,
        "rate": rate,
    }
    path = Path(folder) / "load.json"
    path.write_text(json.dumps(arguments), encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); import load_generator; "
    code += f"load_generator.run_from_file({str(path)!r})"
    # -S and -E: nothing else is loaded into the generator.
    result = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, timeout=60 + 10 * seconds
    )
    if result.returncode:
        raise RuntimeError(f"The load generator failed: {result.stderr[-500:]}")
    return json.loads(result.stdout)


if __name__ == "__main__":
    main()
