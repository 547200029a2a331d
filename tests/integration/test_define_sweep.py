"""A sweep is checked with what the servers of its workspace say, and its caller says which lists it may read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.batches.axes import BadSweep
from comfyui_agent.batches.sweep_request import SweepRequest
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.workflows import Workflows
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.usecases.sweeps import Defined, PatientPlanner, define_sweep
from support.shared_servers import Servers
from support.workspaces import NOWHERE, new_workspace


def refused(name: str) -> Sequence[str]:
    raise ValueError(f"{name} is not for you")


async def defined(workspace: Workspace, read_lines: Any = refused, **sets: Any) -> Defined:
    workflows = Workflows(workspace)
    workflows.refresh()
    wish = SweepRequest(workflows.find("picture"), sets)
    return await define_sweep(workspace, wish, read_lines, PatientPlanner())


def night(folder: Path, *servers: str) -> Workspace:
    new_workspace(folder)
    return load_workspace(folder, {"E3_COMFYUI__SERVERS": ",".join(servers)})


async def test_values_are_checked_with_what_the_server_says(servers: Servers, tmp_path: Path) -> None:
    workspace = night(tmp_path, servers.url("sim"), NOWHERE)
    found = await defined(workspace, **{"1.width": [64, 128]})
    assert (len(found.sweep), found.silent, found.warnings) == (2, (), ())
    with pytest.raises(BadSweep, match="0 is below 1, the least that EmptyImage takes"):
        await defined(workspace, **{"1.width": [0]})


async def test_servers_that_do_not_answer_are_named_without_their_secrets(tmp_path: Path) -> None:
    workspace = night(tmp_path, NOWHERE, "http://someone:s3cr3t@127.0.0.1:9/far?token=t0k3n")
    found = await defined(workspace, **{"1.width": [64]})
    assert found.silent == (NOWHERE, "http://127.0.0.1:9/far")
    assert found.warnings == (
        f"{NOWHERE}, http://127.0.0.1:9/far does not answer: values are checked against the workflow only",
    )


async def test_its_caller_says_which_lists_it_may_read(tmp_path: Path) -> None:
    workspace = night(tmp_path, NOWHERE)
    found = await defined(
        workspace, lambda name: {"sizes.txt": ["64", "128", "256"]}[name], **{"1.width": "@sizes.txt"}
    )
    assert len(found.sweep) == 3
    with pytest.raises(BadSweep, match=r"'@sizes\.txt' cannot be read: sizes\.txt is not for you") as caught:
        await defined(workspace, **{"1.width": "@sizes.txt"})
    assert caught.value.key == ("set", "1.width")


async def test_seeds_are_drawn_anew_for_each(tmp_path: Path) -> None:
    workspace = night(tmp_path, NOWHERE)
    first, second = [(await defined(workspace, **{"1.color": "random:4"})).sweep for _ in range(2)]
    assert first.combinations.axes[0].values != second.combinations.axes[0].values
