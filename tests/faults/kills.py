"""Kills commands at random moments with SIGKILL, gives them again, and compares what they have made."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.artifacts import SMALL, World, arrays, indexed, read_json, served_codes, trained, without_times
from tests.faults.commands import ROOT, Outcome, command_line, environment, run_command
from tests.faults.tally import LOST, SURVIVED, Tally

# A command that takes longer hangs.
_LONGEST_SECONDS = 900


@dataclass
class Case:
    """A command that may be killed.

    Attributes:
        name: of the command.
        module, arguments: the command.
        begins: a path that appears when the command begins to write; a kill comes later.
        result: what the command has made.
        reset: removes what it has made.
    """

    name: str
    module: str
    arguments: list[str]
    begins: Path
    result: Callable[[], Any]
    reset: Callable[[], None]
    expected: Any = None
    seconds: float = 0.0

    def measure(self) -> None:
        """Runs the command to its end and keeps the result and the time that it took."""
        self.reset()
        process = self._start()
        began = time.monotonic()
        outcome = end(process)
        assert outcome.status == 0, outcome
        self.seconds = time.monotonic() - began
        self.expected = self.result()

    def _start(self) -> subprocess.Popen:
        """Starts the command; returns when it begins to write, or has ended."""
        process = start(self.module, self.arguments)
        wait_for(lambda: self.begins.exists() or process.poll() is not None)
        return process

    def kill(self, rng: random.Random, times: int = 1) -> tuple[str, str]:
        """Kills the command so many times, runs it to its end, and returns the verdict with details."""
        self.reset()
        moments = []
        for _ in range(times):
            process = self._start()
            moments.append(rng.uniform(0, self.seconds))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moments[-1])
            kill_group(process)
        outcome = run_command(self.module, self.arguments, timeout=_LONGEST_SECONDS)
        detail = f"killed after {', '.join(f'{moment:.2f} s' for moment in moments)}: {outcome}"
        if outcome.status != 0 or self.result() != self.expected:
            return LOST, detail
        return SURVIVED, detail


def start(module: str, arguments: list[str]) -> subprocess.Popen:
    """Starts a command in a process group of its own."""
    return subprocess.Popen(
        command_line(module, arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
        start_new_session=True,
    )


def end(process: subprocess.Popen) -> Outcome:
    """Waits for the end of a command."""
    output, error = process.communicate(timeout=_LONGEST_SECONDS)
    return Outcome(process.returncode, output, error)


def kill_group(process: subprocess.Popen) -> None:
    """Kills a command with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    """Polls until a condition holds."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def remove(*paths: Path) -> Callable[[], None]:
    """A function that deletes these files and folders."""

    def reset() -> None:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)

    return reset


def train(world: World) -> Case:
    out = world.folder / "killed_run"
    arguments = ["--data", world.data, *SMALL, "--epochs", "6", "--out", out]
    return _case("train", "cmimh_tf.train", arguments, out, lambda: trained(out))


def features(world: World) -> Case:
    out = world.folder / "killed_shards"
    arguments = ["--data", world.data, "--out", out, "--pairs-per-shard", "20"]
    return _case(
        "features", "cmimh_tf.features", arguments, out,
        lambda: {path.name: path.read_bytes() for path in out.glob("pairs*")},
    )  # fmt: skip


def features_to_npz(world: World) -> Case:
    out = world.folder / "killed.npz"
    shards = world.folder / "killed.npz.shards"
    arguments = ["--data", world.data, "--out", out, "--pairs-per-shard", "20"]
    return _case("features to npz", "cmimh_tf.features", arguments, shards, lambda: arrays(out), out)


def hash_data(world: World) -> Case:
    out = world.folder / "killed_codes.npz"
    arguments = ["--model", world.run, "--data", world.data, "--out", out]
    # From the start: the file is written at the end, in an instant.
    return _case("hash", "cmimh_tf.hash", arguments, world.run, lambda: arrays(out), out)


def index_build(world: World) -> Case:
    out = world.folder / "killed_index"
    building = world.folder / ".killed_index.building"
    arguments = ["build", "--model", world.run, "--data", world.data, "--out", out]
    case = _case("index build", "cmimh_tf.index", arguments, building, lambda: indexed(out), out)
    # Once the index is there, `build` says so and changes nothing.
    return _tolerating(case, f"{out} must not exist yet")


def index_add(world: World) -> Case:
    out, start = world.folder / "killed_growing", world.folder / "index_to_add_to"
    world.make("cmimh_tf.hash", "--model", world.run, "--data", world.data, "--out", world.folder / "some.npz")
    world.make("cmimh_tf.index", "build", "--codes", world.folder / "some.npz", "--model", world.run, "--out", start)
    arguments = ["add", "--index", out, "--data", world.data]
    case = _case("index add", "cmimh_tf.index", arguments, out, lambda: indexed(out), out)
    return _starting_with(case, start, out)


def index_rehash(world: World) -> Case:
    out, start = world.folder / "killed_rehashing", world.folder / "index_to_rehash"
    world.train("newer_run", "--seed", "3")
    world.make("cmimh_tf.index", "build", "--model", world.run, "--data", world.data, "--out", start)
    arguments = ["rehash", "--index", out, "--model", world.folder / "newer_run"]
    case = _case("index rehash", "cmimh_tf.index", arguments, out, lambda: indexed(out), out)
    return _starting_with(case, start, out)


def push(world: World) -> Case:
    base = world.folder / "killed_versions"
    arguments = ["--model", world.run, "--model-base", base]
    return _case("push", "serving.push", arguments, base, lambda: served_codes(world, base))


def tune(world: World) -> Case:
    return _tune(world, "tune", "1")


def tune_with_workers(world: World) -> Case:
    return _tune(world, "tune, 2 workers", "2")


def _tune(world: World, name: str, workers: str) -> Case:
    out = world.folder / f"killed_search_{workers}"
    arguments = [
        "--data", world.data, *SMALL, "--out", out, "--trials", "3", "--algorithm", "random", "--workers", workers,
    ]  # fmt: skip

    def result() -> Any:
        return read_json(out / "best.json"), without_times(read_json(out / "result.json"))

    return _case(name, "tuner.search", arguments, out, result)


def experiments(world: World) -> Case:
    out = world.folder / "killed_experiment"
    arguments = [
        "main", "--data", world.data, "--out", out, "--methods", "CVH", "ACQ", "--bits", "8", "16", "--seeds", "1",
        "--jobs", "1",
    ]  # fmt: skip
    return _case(
        "experiments", "cmimh_tf.experiments", arguments, out,
        lambda: [without_times(read_json(path)) for path in sorted(out.rglob("results.json"))],
    )  # fmt: skip


def _case(
    name: str, module: str, arguments: list[Any], begins: Path, result: Callable[[], Any], *outputs: Path
) -> Case:
    return Case(name, module, list(map(str, arguments)), begins, result, remove(*(outputs or (begins,))))


def _starting_with(case: Case, start: Path, out: Path) -> Case:
    """The case with a copy of `start` in place of `out` before each run."""

    def reset() -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(start, out)

    case.reset = reset
    return case


def _tolerating(case: Case, sentence: str) -> Case:
    """The case, in which the second run may end with a sentence because the killed one was finished."""
    kill = case.kill

    def kill_or_finished(rng: random.Random, times: int = 1) -> tuple[str, str]:
        verdict, detail = kill(rng, times)
        is_finished = sentence in detail and case.result() == case.expected
        return (SURVIVED if is_finished else verdict), detail

    case.kill = kill_or_finished  # type: ignore[method-assign]
    return case


CASES = (
    train, features, features_to_npz, hash_data, index_build, index_add, index_rehash, push, tune, tune_with_workers,
    experiments,
)  # fmt: skip


def inject_kills(makers: Any, count: int, seed: int, world: World, tally: Tally) -> None:
    """Kills each command about equally often, every third time twice in a row."""
    numbers = {maker: len(range(position, count, len(makers))) for position, maker in enumerate(makers)}
    left = count
    for maker, kills in numbers.items():
        if not kills:
            continue
        case = maker(world)
        case.measure()
        for number in range(kills):
            left -= 1
            verdict, detail = case.kill(random.Random(f"{seed}/{case.name}/{number}"), 2 if number % 3 == 2 else 1)
            tally.add(case.name, "kill", verdict, detail, left)


def kill_each_component(world: World, seed: int, tally: Tally) -> None:
    """Kills the pipeline in each of its components in turn, then lets it finish, and compares the pushed model."""
    roots = [world.folder / name for name in ("whole_root", "killed_root")]
    arguments = [
        ["--data", str(world.data), "--preset", "smoke", "--epochs", "10", "--root", str(root)] for root in roots
    ]
    whole = run_command("pipeline.run_local", arguments[0], timeout=_LONGEST_SECONDS)
    assert whole.status == 0, whole
    components = [line.split()[0] for line in whole.output.splitlines() if " run " in line]
    rng = random.Random(f"{seed}/pipeline")
    moments = {
        component: kill_after(arguments[1], components[:number], rng) for number, component in enumerate(components)
    }
    outcome = run_command("pipeline.run_local", arguments[1], timeout=_LONGEST_SECONDS)
    is_same = outcome.status == 0 and _pushed(roots[0]) == _pushed(roots[1])
    for component, moment in moments.items():
        detail = f"killed {moment:.2f} s into each component; then {outcome}"
        tally.add(f"pipeline: {component}", "kill", SURVIVED if is_same else LOST, detail)


def kill_after(arguments: list[str], components: list[str], rng: random.Random) -> float:
    """Kills the pipeline some time after the last of these components has ended; returns the seconds."""
    process = start("pipeline.run_local", arguments)
    # Its first line is printed before the first component starts.
    lines = iter(process.stdout.readline, "")
    for line in lines:
        if not components or line.split()[:1] == components[-1:]:
            break
    moment = rng.uniform(0, 3)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    kill_group(process)
    return moment


def _pushed(root: Path) -> Any:
    newest = max((root / "serving_model" / "cmimh").iterdir(), key=lambda path: int(path.name))
    items = [item and item[1] for item in indexed(root / "index")]
    return newest.name, read_json(newest / "assets.extra" / "metrics.json"), items
