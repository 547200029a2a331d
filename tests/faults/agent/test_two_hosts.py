"""Row 26: two hosts, one PostgreSQL, one object store; any of it killed or cut from the others. Every job ends once."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from support.agents import server_queue, wait_until
from support.hosts import DATABASE, OBJECTS, Network
from support.two_hosts import Chaos, Site, check_site, site

SEED = int(os.environ.get("PYTEST_SEED", "20261118"))
SHORT = pytest.param(60, 7, id="short", marks=pytest.mark.timeout(300))
LONG = pytest.param(2000, 150, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(3000)])
MOST_AT_A_SERVER = 6
"""Two, however many agents know it; and what agents behind a cut have given up or posted late, until it is taken back.
Four agents with a window each would have eight."""


@pytest.mark.parametrize(("jobs", "faults"), [SHORT, LONG])
@pytest.mark.parametrize("all_servers", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["all", "own"])
def test_every_job_is_rendered_once_whatever_is_killed_or_cut(
    network: Network, tmp_path: Path, jobs: int, faults: int, all_servers: bool
) -> None:
    with site(network, tmp_path, all_servers=all_servers) as there:
        chaos = Chaos(there, SEED)
        there.workspace.submit(jobs)
        with there.watched() as watchers:
            there.start_agents()
            work_off(there, chaos, jobs, faults)
            there.settle()
        sys.stdout.write(f"seed {SEED}: {dict(chaos.done)}, at most {[each.most for each in watchers]} prompts\n")
        check_site(there, jobs)
        assert max(each.most for each in watchers) <= MOST_AT_A_SERVER


def work_off(there: Site, chaos: Chaos, jobs: int, faults: int) -> None:
    """Strike all the while: each time waits for its share of the work."""
    struck, deadline = 0, time.monotonic() + jobs + 120
    while (done := there.done()) < jobs:
        assert time.monotonic() < deadline, f"{done} of {jobs} done\n{there.tails()}"
        if struck < faults and done >= jobs * struck // (faults + 1):
            struck += 1
            chaos.strike()
        chaos.mend()
        time.sleep(0.05)
    chaos.mend(everything=True)


def test_a_host_that_is_cut_from_the_database_lets_go_before_the_other_takes_over(
    network: Network, tmp_path: Path
) -> None:
    """It still reaches the server, where the prompt runs on: the other host takes it over, and it is not run again."""
    with site(network, tmp_path, render="6") as there:
        one, two = there.machines
        for machine in there.machines:
            machine.workspace.environment["E3_LEASE_SECONDS"] = "4"
        (name,) = there.workspace.submit(1)
        one.agents = [one.start_agent()]
        wait_until(lambda: any(server_queue(each.url).running for each in there.simulators), "the render")
        one.host.cut(DATABASE)
        two.agents = [two.start_agent()]
        wait_until(lambda: "dropped, the database could not be asked in time" in one.workspace.tail(), "the drop", 60)
        (row,) = there.rows("SELECT lease_expires_at > clock_timestamp() AS is_held FROM jobs")
        assert row["is_held"], "it let go when another could have had the job already"
        wait_until(lambda: f"{name}: taken over from one-" in two.workspace.tail(), "the other", 60)
        wait_until(lambda: there.done() == 1, "the end", 60)
        one.host.mend(DATABASE)
        there.settle()
        (job,) = check_site(there, 1)
        assert job.run_count == 1


@pytest.mark.slow
def test_results_wait_for_a_store_that_a_host_cannot_reach(network: Network, tmp_path: Path) -> None:
    with site(network, tmp_path) as there:
        one = there.machines[0]
        one.host.cut(OBJECTS)
        there.workspace.submit(3)
        one.agents = [one.start_agent()]
        wait_until(lambda: "results cannot be kept in s3://" in one.workspace.tail(), "the alert", 60)
        assert there.done() == 0
        one.host.mend(OBJECTS)
        wait_until(lambda: there.done() == 3, "the end", 60)
        there.settle()
        jobs = check_site(there, 3)
        assert [job.run_count for job in jobs] == [1, 1, 1]
