"""Row 26: two hosts, one PostgreSQL, one object store; any of it killed or cut from the others. Every job ends once."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from support.hosts import Network
from support.two_hosts import Chaos, check_site, site

SEED = int(os.environ.get("E3_TEST_SEED", "20261118"))
SHORT = pytest.param(60, 5, id="short")
LONG = pytest.param(2000, 150, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(3000)])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("jobs", "faults"), [SHORT, LONG])
@pytest.mark.parametrize("all_servers", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["all", "own"])
def test_every_job_is_rendered_once_whatever_is_killed_or_cut(
    network: Network, tmp_path: Path, jobs: int, faults: int, all_servers: bool
) -> None:
    with site(network, tmp_path, all_servers=all_servers) as there:
        chaos = Chaos(there, SEED)
        there.workspace.submit(jobs)
        there.start_agents()
        struck, deadline = 0, time.monotonic() + jobs + 120
        while (done := there.done()) < jobs:
            assert time.monotonic() < deadline, f"{done} of {jobs} done\n{there.tails()}"
            if struck < faults and done >= jobs * struck // (faults + 1):
                struck += 1
                chaos.strike()
            chaos.mend()
            time.sleep(0.05)
        chaos.mend(everything=True)
        there.settle()
        sys.stdout.write(f"seed {SEED}: {dict(chaos.done)}\n")
        check_site(there, jobs)
