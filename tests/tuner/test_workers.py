"""Chief and workers as processes: they start with KerasTuner's variables and end together."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner import workers
from tuner.workers import WorkerDied, run_chief_and_workers

# A worker does BODY; a chief waits for an hour, as KerasTuner's own may for ever.
MEMBER = """
import os, signal, sys, time
from pathlib import Path
name = os.environ["KERASTUNER_TUNER_ID"]
folder = Path(sys.argv[1])
written = folder / "logs" / f"{name}.written"
written.write_text(f"{os.environ['KERASTUNER_ORACLE_IP']}:{os.environ['KERASTUNER_ORACLE_PORT']} {os.getpid()}")
os.replace(written, folder / name)
if name == "chief":
    time.sleep(3600)
BODY
"""
WAIT_FOR_THE_CHIEF = """
while not (folder / "chief").exists():
    time.sleep(0.05)
"""


def command(folder, body):
    return [sys.executable, "-c", MEMBER.replace("BODY", body), str(folder)]


def is_alive(pid):
    """Whether the process runs. A zombie does not: in a container nobody may collect it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids(folder):
    return [int(file.read_text().split()[1]) for file in folder.iterdir() if file.is_file()]


def wait_until(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_all_have_one_address_and_the_chief_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_CHIEF_GRACE_SECONDS", 0.2)
    run_chief_and_workers(command(tmp_path, WAIT_FOR_THE_CHIEF), 2, tmp_path / "logs")
    addresses = {file.name: file.read_text().split()[0] for file in tmp_path.iterdir() if file.is_file()}
    assert set(addresses) == {"chief", "worker0", "worker1"}
    assert len(set(addresses.values())) == 1
    assert not any(map(is_alive, pids(tmp_path)))


def test_all_end_when_a_worker_dies(tmp_path):
    body = """
if name == "worker1":
    print("out of memory", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(3600)
"""
    with pytest.raises(WorkerDied, match=r"worker1 was killed by SIGKILL; .*worker1.log:\n  out of memory"):
        run_chief_and_workers(command(tmp_path, body), 2, tmp_path / "logs")
    assert not any(map(is_alive, pids(tmp_path)))


def test_dead_chief_ends_the_workers(tmp_path):
    body = f"""{WAIT_FOR_THE_CHIEF}
os.kill(int((folder / "chief").read_text().split()[1]), signal.SIGKILL)
time.sleep(3600)
"""
    with pytest.raises(WorkerDied, match="chief was killed by SIGKILL"):
        run_chief_and_workers(command(tmp_path, body), 1, tmp_path / "logs")
    assert not any(map(is_alive, pids(tmp_path)))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_members_end_with_the_command(tmp_path, how):
    members = command(tmp_path, "time.sleep(3600)")
    watched = MEMBER.replace("import os,", "from tuner.workers import die_with_parent\ndie_with_parent()\nimport os,")
    members[2] = watched.replace("BODY", "time.sleep(3600)")
    code = f"from pathlib import Path\nfrom tuner.workers import run_chief_and_workers\n" \
           f"run_chief_and_workers({members!r}, 2, Path({str(tmp_path / 'logs')!r}))"  # fmt: skip
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until(lambda: len(pids(tmp_path)) == 3)
        parent.send_signal(how)
        parent.wait(300)
    finally:
        parent.kill()
    wait_until(lambda: not any(map(is_alive, pids(tmp_path))))
