"""Row 12: a job kills its server each time. Three strikes, and it is out; nobody else is suspected."""

from __future__ import annotations

import pytest

from support.agents import AgentWorkspace, check_promises
from support.breakage import (
    Executioner,
    Make,
    Start,
    again_and_again,
    coloured,
    job,
    outcomes_of,
    submit,
    told,
    with_sleep_node,
)

DEADLY = 666
JOBS = 8
PATIENCE = [pytest.param(2.5, id="after-a-while", marks=pytest.mark.slow), pytest.param(0.0, id="at-once")]


def submit_with_poison(workspace: AgentWorkspace) -> None:
    """The deadly one runs first, and others wait beside it."""
    innocent = [job(f"job_{n}.yaml", coloured(n + 1)) for n in range(JOBS)]
    submit(workspace, job("deadly.yaml", coloured(DEADLY, seconds=60), priority=1), *innocent)


class Strikes:
    """Every strike that anyone was ever seen with."""

    def __init__(self, workspace: AgentWorkspace) -> None:
        self.workspace = workspace
        self.seen: dict[str, int] = {}

    def look(self) -> None:
        for each in self.workspace.jobs():
            self.seen[each.config_name] = max(self.seen.get(each.config_name, 0), each.strikes)


def check_justice(workspace: AgentWorkspace, executioner: Executioner, strikes: Strikes, innocent: int = JOBS) -> None:
    assert executioner.kills == 3
    deadly = workspace.job("deadly.yaml")
    assert (deadly.status, deadly.failure_class) == ("failed", "poison")
    assert (deadly.strikes, deadly.run_count, deadly.retries_attempted) == (3, 3, 0)
    assert outcomes_of(workspace, "deadly.yaml") == ["server_lost", "server_lost", "poison"]
    assert len(told(workspace, "alert.poison", job_id=deadly.id)) == 1
    assert len(told(workspace, "job.failed", failure_class="poison")) == 1
    jobs = check_promises(workspace, innocent + 1, done=innocent)
    assert [each.retries_attempted for each in jobs] == [0] * (innocent + 1)
    strikes.look()
    assert {name for name, count in strikes.seen.items() if count} == {"deadly.yaml"}
    assert executioner.company[0] == 1, "an innocent one waited beside it"
    assert (executioner.company[1], executioner.company[2]) == (0, 0), "a suspect runs alone"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("patience", PATIENCE)
def test_after_three_crashes_a_job_is_poison_and_the_others_are_done(
    start_server: Start, make_workspace: Make, server_kind: str, patience: float
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    submit_with_poison(workspace)

    def submit_more() -> None:
        """Others that come first, so that the suspect meets a server that is at work."""
        urgent = range(3 * executioner.kills, 3 * executioner.kills + 3)
        submit(workspace, *(job(f"urgent_{n}.yaml", coloured(100 + n, seconds=0.3), priority=0) for n in urgent))

    executioner, strikes = Executioner(server, DEADLY, patience, submit_more, awaits_company=True), Strikes(workspace)
    with again_and_again(executioner.look), again_and_again(strikes.look, pause=0.1):
        assert workspace.finish(timeout=90) == 1
    check_justice(workspace, executioner, strikes, innocent=JOBS + 3 * 3)


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_with_two_servers_the_others_go_on_while_a_job_kills_one_after_the_other(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    servers = [with_sleep_node(start_server(), server_kind) for _ in range(2)]
    workspace = make_workspace(*(server.url for server in servers))
    submit_with_poison(workspace)
    first, second = (Executioner(server, DEADLY, 1.0) for server in servers)
    strikes = Strikes(workspace)
    with again_and_again(first.look), again_and_again(second.look), again_and_again(strikes.look, pause=0.1):
        assert workspace.finish(timeout=90) == 1
    assert first.kills + second.kills == 3
    deadly = workspace.job("deadly.yaml")
    assert (deadly.failure_class, deadly.strikes, deadly.run_count) == ("poison", 3, 3)
    jobs = check_promises(workspace, JOBS + 1, done=JOBS)
    assert [each.retries_attempted for each in jobs] == [0] * (JOBS + 1)
    assert {name for name, count in strikes.seen.items() if count} == {"deadly.yaml"}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("patience", PATIENCE[:1])
@pytest.mark.slow
def test_an_agent_that_dies_with_the_server_each_time_still_finds_the_poison(
    start_server: Start, make_workspace: Make, server_kind: str, patience: float
) -> None:
    """Both on one machine, and the job takes the machine down."""
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    submit_with_poison(workspace)
    agents = [workspace.start("--until-idle")]

    def kill_agent() -> None:
        workspace.kill(agents[-1])
        agents.append(workspace.start("--until-idle"))

    executioner, strikes = Executioner(server, DEADLY, patience, kill_agent, awaits_company=True), Strikes(workspace)
    with again_and_again(executioner.look), again_and_again(strikes.look, pause=0.1):
        workspace.wait_for(
            lambda: executioner.kills > 5 or workspace.counts().is_idle, "three strikes, or far too many", 100
        )
    assert executioner.kills <= 3, "killed and killed again"
    assert agents[-1].wait(60) == 1
    check_justice(workspace, executioner, strikes)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_job_that_was_running_by_chance_when_its_server_died_is_cleared_when_it_ends_well(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    submit(workspace, job("unlucky.yaml", coloured(DEADLY, seconds=1.0)), job("other.yaml", coloured(2)))
    executioner, strikes = Executioner(server, DEADLY, 0.5), Strikes(workspace)

    def kill_once() -> None:
        if not executioner.kills:
            executioner.look()

    with again_and_again(kill_once), again_and_again(strikes.look):
        assert workspace.finish(timeout=60) == 0
    assert strikes.seen["unlucky.yaml"] == 1
    unlucky = next(each for each in check_promises(workspace, 2) if each.config_name == "unlucky.yaml")
    assert (unlucky.strikes, unlucky.retries_attempted, unlucky.run_count) == (0, 0, 2)
