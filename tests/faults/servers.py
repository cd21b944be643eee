"""Kills the two services while they answer requests, starts them again, and compares the answers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from cmimh_tf.checksums import verify_export
from cmimh_tf.search.api import open_index
from tests.faults.artifacts import World
from tests.faults.commands import ROOT, environment
from tests.faults.kills import kill_group
from tests.faults.tally import LOST, SURVIVED, Tally

_CLIENTS = 3


def kill_model_server(world: World, rng: random.Random) -> tuple[str, str]:
    """Kills `cmimh serve` under load. The exported model must stay intact and give the same codes."""
    flags = ["serving.server", "--model-base", str(world.versions), "--rest-port", "0", "--grpc-port", "-1"]
    body = {"signature_name": "hash_text", "instances": world.pairs.text[:8].tolist()}

    def ask(facts: dict[str, Any]) -> Any:
        return _post(f"http://127.0.0.1:{facts['rest_port']}/v1/models/cmimh:predict", body)

    verdict, detail = _kill_under_load(flags, ask, rng)
    for version in world.versions.iterdir():
        verify_export(version)
    return verdict, detail


def kill_search_server(world: World, rng: random.Random) -> tuple[str, str]:
    """Kills `cmimh serve-search` under load. The index must stay intact and give the same hits."""
    index = world.folder / "served_index"
    if not index.exists():
        world.make("cmimh_tf.index", "build", "--model", world.run, "--data", world.data, "--out", index)
    flags = ["serving.search", "--index", str(index), "--port", "0"]

    def ask(facts: dict[str, Any]) -> Any:
        found = _post(f"{facts['address']}v1/search", {"id": "pair-7", "top": 20})
        return [(hit["id"], hit["distance"]) for hit in found["results"][0]["hits"]]

    verdict, detail = _kill_under_load(flags, ask, rng)
    with open_index(index) as opened:
        assert opened.verify() == []
    return verdict, detail


def _kill_under_load(flags: list[str], ask: Callable[[dict[str, Any]], Any], rng: random.Random) -> tuple[str, str]:
    process, facts = _start(flags)
    expected = ask(facts)
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            try:
                ask(facts)
            except OSError:
                return

    clients = [threading.Thread(target=load) for _ in range(_CLIENTS)]
    for client in clients:
        client.start()
    moment = rng.uniform(0.1, 1.0)
    time.sleep(moment)
    kill_group(process)
    stop.set()
    for client in clients:
        client.join()
    process, facts = _start(flags)
    try:
        answer = ask(facts)
    finally:
        kill_group(process)
    return SURVIVED if answer == expected else LOST, f"killed after {moment:.2f} s: {str(answer)[:300]}"


def _start(flags: list[str]) -> tuple[subprocess.Popen, dict[str, Any]]:
    """A service that listens, and what it logged about where."""
    process = subprocess.Popen(
        [sys.executable, "-m", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
        start_new_session=True,
    )
    for line in process.stderr:
        if '"listening"' in line:
            # The pipe must be emptied, or the service would block.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, json.loads(line)
    raise RuntimeError(f"{flags} did not start")


def _post(address: str, body: Any) -> Any:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


SERVERS = {"serve": kill_model_server, "serve-search": kill_search_server}


def inject_server_kills(count: int, seed: int, world: World, tally: Tally) -> None:
    """Kills both services in turn."""
    for number in range(count):
        name = list(SERVERS)[number % len(SERVERS)]
        verdict, detail = SERVERS[name](world, random.Random(f"{seed}/{name}/{number}"))
        tally.add(name, "kill", verdict, detail, count - number - 1)
