"""Row 9: the websocket is dropped, silent or full of garbage while an agent works. Nothing is rerun, nothing hangs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from comfyui_agent.lab.fault_proxy import Fault, FaultProxy, Garbage, Loss, Refuse, Reset, Silence, Slice
from support.agents import check_promises, renders
from support.breakage import Make, Start, prompts_posted, proxied, wait_for_end
from support.sampling import some

JOBS = 30


@pytest.mark.parametrize(
    "fault",
    some(
        [
            pytest.param(Refuse(), id="refused"),
            pytest.param(Reset(after=300), id="dropped-early"),
            pytest.param(Reset(after=2000), id="dropped-later"),
            pytest.param(Silence(), id="no-handshake"),
            pytest.param(Silence(after=200), id="silent"),
            pytest.param(Slice(size=7, pause=0.02), id="sliced-and-slow"),
            pytest.param(Garbage(), id="garbage-handshake"),
            pytest.param(Garbage(after=400), id="garbage-frames"),
            pytest.param(Loss(0.5), id="lossy"),
        ],
        10,
    ),
)
def test_an_agent_with_a_bad_websocket_renders_every_job_once(
    start_server: Start, make_workspace: Make, fault: Fault
) -> None:
    server = start_server()
    with proxied(server) as proxy:
        workspace = make_workspace(proxy.it.url)
        workspace.submit(JOBS)
        proxy.do(lambda it: it.inject(fault, on="/ws", times=None))
        assert workspace.finish(timeout=30) == 0
        jobs = check_promises(workspace, JOBS)
        assert [(job.run_count, job.retries_attempted) for job in jobs] == [(1, 0)] * JOBS
        assert prompts_posted(proxy) == renders([server.output_dir]) == JOBS


@pytest.mark.parametrize(
    "break_sockets",
    some(
        [
            pytest.param(lambda it: it.silence_all("/ws"), id="silenced"),
            pytest.param(lambda it: it.cut_all("/ws"), id="cut"),
            pytest.param(lambda it: it.abandon_all("/ws"), id="abandoned"),
        ],
        3,
    ),
)
def test_a_websocket_that_breaks_in_mid_run_costs_no_render(
    start_server: Start, make_workspace: Make, break_sockets: Callable[[FaultProxy], None]
) -> None:
    server = start_server("--render-seconds", "0.05")
    with proxied(server) as proxy:
        workspace = make_workspace(proxy.it.url)
        workspace.submit(JOBS)
        agent = workspace.start("--until-idle")
        for share in (5, 15):
            workspace.wait_done(share)
            assert proxy.do(lambda it: any("/ws" in request for request in it.requests))
            proxy.do(break_sockets)
        assert wait_for_end(workspace, agent) == 0
        jobs = check_promises(workspace, JOBS)
        assert [(job.run_count, job.retries_attempted) for job in jobs] == [(1, 0)] * JOBS
        assert prompts_posted(proxy) == renders([server.output_dir]) == JOBS
