"""Commands on a full disk, on a disk that cannot be written, and with too little memory."""

from __future__ import annotations

import contextlib
import functools
import random
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.artifacts import (
    SMALL,
    World,
    arrays,
    indexed,
    read_json,
    served_codes,
    trained,
    without_times,
)
from tests.faults.commands import CommandWorker, Outcome, run_command
from tests.faults.tally import DETECTED, LOST, SURVIVED, Tally

_ROOMY = "256m"
# For a command that waits for memory; longer than any takes.
_PATIENCE_SECONDS = 150
# From where TensorFlow cannot be imported to where nearly everything works.
_MEMORY_BYTES = (600 << 20, 2600 << 20)


@functools.cache
def why_no_mounts() -> str:
    """Why file systems cannot be mounted here; "" if they can."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True, text=True, check=False)
        if mounted.returncode == 0:
            subprocess.run(["umount", folder], check=True)
            return ""
        return f"a small file system cannot be mounted here: {mounted.stderr.strip() or 'not permitted'}"


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """Mounts a file system of this size; yields a function that changes its options, such as `size=1g` or `ro`."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)
    try:
        yield lambda option: subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


Writing = tuple[str, list[str], Callable[[], Any]]


def writing_commands(world: World, disk: Path) -> dict[str, Writing]:
    """Each command that writes, with its output on a disk: module, arguments, result."""
    data, run = str(world.data), str(world.run)
    experiment = ["--methods", "CVH", "--bits", "8", "--seeds", "1", "--jobs", "1"]
    commands: dict[str, Writing] = {
        "train": ("cmimh_tf.train", ["--data", data, *SMALL, "--out", f"{disk}/run"], lambda: trained(disk / "run")),
        "features": (
            "cmimh_tf.features",
            ["--data", data, "--out", f"{disk}/shards", "--pairs-per-shard", "40"],
            lambda: {path.name: path.read_bytes() for path in (disk / "shards").glob("pairs*")},
        ),
        "hash": (
            "cmimh_tf.hash",
            ["--model", run, "--data", data, "--out", f"{disk}/codes.npz"],
            lambda: arrays(disk / "codes.npz"),
        ),
        "index build": (
            "cmimh_tf.index",
            ["build", "--model", run, "--data", data, "--out", f"{disk}/index"],
            lambda: indexed(disk / "index"),
        ),
        "push": (
            "serving.push",
            ["--model", run, "--model-base", f"{disk}/versions"],
            lambda: served_codes(world, disk / "versions"),
        ),
        "tune": (
            "tuner.search",
            ["--data", data, *SMALL, "--trials", "1", "--out", f"{disk}/search"],
            lambda: without_times(read_json(disk / "search" / "result.json")),
        ),
        "experiments": (
            "cmimh_tf.experiments",
            ["main", "--data", data, "--out", f"{disk}/experiment", *experiment],
            lambda: [without_times(read_json(path)) for path in sorted(disk.rglob("results.json"))],
        ),
        "pipeline": (
            "pipeline.run_local",
            ["--data", data, "--preset", "smoke", "--epochs", "10", "--root", f"{disk}/root"],
            lambda: indexed(disk / "root" / "index"),
        ),
    }
    return commands


def fill_disk(
    name: str, world: World, rng: random.Random, worker: CommandWorker, expected: dict[str, Any]
) -> tuple[str, str]:
    """Runs a command on a disk that is too small, makes room, and runs it again.

    Args:
        name: of `writing_commands`.
        world: the data and models.
        rng: chooses how small.
        worker: runs the commands.
        expected: for each name the bytes that it needs and its result; filled by the first call.
    """
    disk = world.folder / "disk"
    module, arguments, result = writing_commands(world, disk)[name]
    if name not in expected:
        with small_disk(disk, _ROOMY):
            outcome = worker.run(module, arguments)
            assert outcome.status == 0, outcome
            needed = int(subprocess.check_output(["df", "--output=used", "-B1", str(disk)]).split()[1])
            expected[name] = needed, result()
    needed, right = expected[name]
    size = rng.randint(8192, needed)
    with small_disk(disk, str(size)) as change:
        first = worker.run(module, arguments)
        change(f"size={_ROOMY}")
        return judge_limited(first, lambda: worker.run(module, arguments), result, right, f"{size} bytes of {needed}")


def write_protect(name: str, world: World, worker: CommandWorker) -> tuple[str, str]:
    """Runs a command on a disk that cannot be written: one sentence."""
    disk = world.folder / "disk"
    module, arguments, _ = writing_commands(world, disk)[name]
    with small_disk(disk, _ROOMY) as change:
        change("ro")
        outcome = worker.run(module, arguments)
    return (DETECTED if outcome.refusal else LOST), str(outcome)


def judge_limited(
    first: Outcome, again: Callable[[], Outcome], result: Callable[[], Any], right: Any, limit: str
) -> tuple[str, str]:
    """Of a command under a limit and the same command without it, which must give the right result."""
    detail = f"{limit}: {first}"
    # A process that is ended by the system, such as by std::bad_alloc in C++, can say nothing.
    if first.status != 0 and not (first.refusal or first.status < 0):
        return LOST, detail
    if first.status != 0:
        second = again()
        if second.status != 0:
            return LOST, f"{detail}; then {second}"
    if result() != right:
        return LOST, f"{detail}; then another result"
    return (DETECTED if first.refusal else SURVIVED), detail


def limit_memory(
    name: str, world: World, rng: random.Random, worker: CommandWorker, expected: dict[str, Any]
) -> tuple[str, str]:
    """Runs a command with too little memory, and again with enough; arguments as `fill_disk`."""
    folder = world.clean("memory")
    folder.mkdir()
    module, arguments, result = writing_commands(world, folder)[name]
    if name not in expected:
        outcome = worker.run(module, arguments)
        assert outcome.status == 0, outcome
        expected[name] = result()
        world.clean("memory").mkdir()
    limit = rng.randint(*_MEMORY_BYTES)
    try:
        first = run_command(
            module,
            arguments,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            timeout=_PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        # OpenBLAS, which NumPy multiplies with, waits for memory for ever. It was killed, as an operator would do.
        first = Outcome(-9, "", "killed, because it waited for memory")
    return judge_limited(
        first, lambda: worker.run(module, arguments), result, expected[name], f"{limit / 1e9:.2f} GB of memory"
    )


def inject_limits(names: list[str], count: int, seed: int, world: World, worker: CommandWorker, tally: Tally) -> None:
    """Full disks and too little memory, `count` of each per command, and one disk that cannot be written."""
    on_disk: dict[str, Any] = {}
    in_memory: dict[str, Any] = {}
    for position, name in enumerate(names):
        left = len(names) - position - 1
        if not why_no_mounts():
            for number in range(count):
                rng = random.Random(f"{seed}/{name}/disk/{number}")
                tally.add(name, "full disk", *fill_disk(name, world, rng, worker, on_disk), left)
            tally.add(name, "read-only disk", *write_protect(name, world, worker), left)
        for number in range(count):
            rng = random.Random(f"{seed}/{name}/memory/{number}")
            tally.add(name, "memory limit", *limit_memory(name, world, rng, worker, in_memory), left)
