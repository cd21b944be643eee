"""A world of small artifacts, a process for commands, and the tally of all faults.

The options make a soak of the tests: `make soak` gives them.
"""

import sys
from pathlib import Path

import pytest

from tests.faults.artifacts import World
from tests.faults.commands import CommandWorker
from tests.faults.tally import Tally

_TALLIES = []


def pytest_addoption(parser):
    group = parser.getgroup("faults")
    group.addoption("--soak", action="store_true", help="all artifacts and commands, with a line per fault")
    group.addoption("--corruptions", type=int, metavar="N", help="number of damaged files (default with --soak: 1000)")
    group.addoption("--kills", type=int, metavar="N", help="number of kills (default with --soak: 60)")
    group.addoption("--fault-seed", type=int, default=0, metavar="N", help="seed of all faults (default: 0)")
    group.addoption("--tally", type=Path, default=Path("runs/soak.json"), metavar="FILE", help="where the tally goes")


@pytest.fixture(scope="session")
def soak(request):
    """Whether this is a soak. Options of this file exist only if the tests of this folder were asked for."""
    return request.config.getoption("soak", False)


@pytest.fixture(scope="session")
def fault_seed(request):
    return request.config.getoption("fault_seed", 0)


@pytest.fixture(scope="session")
def number_of(request, soak):
    """`number_of("kills", fast=3, soak=60)`: the option, or one of the two numbers."""

    def choose(name, **numbers):
        return request.config.getoption(name, None) or numbers["soak" if soak else "fast"]

    return choose


@pytest.fixture(scope="session")
def worker():
    made = CommandWorker()
    yield made
    made.close()


@pytest.fixture(scope="session")
def world(tmp_path_factory, worker):
    return World(tmp_path_factory.mktemp("world"), worker)


@pytest.fixture(scope="session")
def tally(soak, pytestconfig):
    made = Tally()
    if soak:
        made.stream = sys.stdout
        _TALLIES.append(made)
    yield made
    if soak:
        made.write(pytestconfig.getoption("tally"))


@pytest.fixture
def no_losses(tally):
    """Fails a test if one of its faults was lost."""
    before = len(tally.losses)
    yield
    assert not tally.losses[before:], "\n".join(tally.losses[before:])


def pytest_terminal_summary(terminalreporter):
    for tally in _TALLIES:
        terminalreporter.section("faults")
        terminalreporter.write_line(tally.table(0))
        terminalreporter.write_line("")
        terminalreporter.write_line(tally.table(1))
