"""Damaged files, kills, full disks, little memory, jumping clocks: the right result or one sentence, no wrong codes.

A short selection, the same in each run. `make soak` injects faults into everything, for an hour or two.
"""

import pytest

from tests.faults import artifacts, kills, limits
from tests.faults.artifacts import ARTIFACTS
from tests.faults.clocks import inject_clock_jumps
from tests.faults.injection import inject_corruptions
from tests.faults.kills import inject_kills, kill_each_component
from tests.faults.limits import inject_limits
from tests.faults.servers import inject_server_kills

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_losses")]

FAST_ARTIFACTS = (
    artifacts.hash_with_run, artifacts.stopped_run, artifacts.exported_model, artifacts.codes_file, artifacts.shards,
    artifacts.search_index,
)  # fmt: skip
FAST_LIMITS = ["train"]


def test_damaged_files_are_noticed_or_do_no_harm(world, worker, tally, soak, fault_seed, number_of):
    makers = {maker: share for maker, share in ARTIFACTS.items() if soak or maker in FAST_ARTIFACTS}
    count = number_of("corruptions", fast=24, soak=1000)
    inject_corruptions(makers, count, fault_seed, world, worker, tally)
    assert tally.total() >= count - len(makers)


def test_killed_commands_finish_with_the_same_result(world, tally, soak, fault_seed, number_of):
    count = number_of("kills", fast=1, soak=60)
    inject_kills(kills.CASES if soak else (kills.train,), count, fault_seed, world, tally)
    if soak:
        # tests/e2e/test_pipeline.py kills the Trainer.
        kill_each_component(world, fault_seed, tally)


def test_killed_services_start_again(world, tally, soak, fault_seed):
    inject_server_kills(10 if soak else 1, fault_seed, world, tally)


def test_full_disks_and_little_memory_leave_nothing_half_written(world, worker, tally, soak, fault_seed):
    names = list(limits.writing_commands(world, world.folder)) if soak else FAST_LIMITS
    inject_limits(names, 4 if soak else 1, fault_seed, world, worker, tally)
    if reason := limits.why_no_mounts():
        pytest.skip(f"without full and read-only disks: {reason}")


def test_clock_jumps_change_nothing(world, worker, tally, soak, fault_seed):
    names = list(limits.writing_commands(world, world.folder)) if soak else ["train"]
    inject_clock_jumps(names, 3 if soak else 1, fault_seed, world, worker, tally)
