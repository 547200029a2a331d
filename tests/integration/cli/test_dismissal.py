"""`e3 dismiss`, `e3 queue rm`, names that are nearly right, and being told that nobody works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.store import Store
from support.agents import AgentWorkspace
from support.stores import broken, lease, wish
from support.workspaces import call_e3, drop, new_workspace

NOBODY = "e3: no agent runs here: start one with e3 run\n"


async def _night(store: Store) -> None:
    await store.run(
        ops.submit_jobs, [wish("done.yaml"), wish("fox.yaml"), wish("owl.yaml"), wish("elk.yaml"), wish("waits.yaml")]
    )
    done, fox, owl = await lease(store, most=3)
    await store.run(ops.complete_job, done.lease, ["jobs/finished/image/done.png"], 1.0)
    for leased in (fox, owl):
        await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION))
    elk = await store.run(ops.find_job, "elk.yaml")
    assert elk is not None
    await store.run(ops.cancel_jobs, [elk.id])


@pytest.fixture
def night(tmp_path: Path) -> AgentWorkspace:
    """One job done, two failed, one cancelled, one that waits."""
    made = new_workspace(tmp_path / "night")
    made.store(_night)
    return made


def last_line(text: str) -> str:
    return text.splitlines()[-1]


def test_what_is_dismissed_is_out_of_every_count_and_still_there(night: AgentWorkspace) -> None:
    before = call_e3("queue", "ls", cwd=night.root)
    assert last_line(before.stdout) == "1 pending, 0 rendering, 1 done, 2 need attention"
    assert "◌ Cancelled  50  elk.yaml" in before.stdout
    assert call_e3("doctor", cwd=night.root).stdout.count("△ jobs: 2 need attention: ") == 1
    answer = call_e3("dismiss", "fox", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (0, "◌ Dismissed  fox.yaml (2)\n")
    listed = call_e3("queue", "ls", "--attention", cwd=night.root).stdout.splitlines()
    assert "owl.yaml" in listed[0]
    assert listed[1:] == ["1 pending, 0 rendering, 1 done, 1 needs attention"]
    shown = call_e3("show", "fox", cwd=night.root).stdout
    assert "state        ◌ Dismissed: execution" in shown
    assert "execution: boom" in shown
    assert call_e3("dismiss", "--failed", cwd=night.root).stdout == "◌ Dismissed  owl.yaml (3)\n"
    assert call_e3("dismiss", "--failed", cwd=night.root).stdout == "Nothing needs attention.\n"
    assert call_e3("retry", "--failed", cwd=night.root).stdout == "Nothing needs attention.\n"
    assert "● jobs: none needs attention" in call_e3("doctor", cwd=night.root).stdout
    assert last_line(call_e3("queue", "ls", cwd=night.root).stdout).endswith("1 done, 0 need attention")
    rows = json.loads(call_e3("queue", "ls", "--status", "failed", "--json", cwd=night.root).stdout)
    assert len(rows) == 3


def test_what_cannot_be_dismissed_is_said(night: AgentWorkspace) -> None:
    answer = call_e3("dismiss", "waits", "done", "elk", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (1, "◌ Cancelled  elk.yaml (4)\n")
    assert "waits.yaml: it waits already: only failed jobs can be dismissed" in answer.stderr
    for wrong in ([], ["fox", "--failed"], ["--failed", "--batch", "x"]):
        assert call_e3("dismiss", *wrong, cwd=night.root).returncode == 2


def test_the_members_of_a_batch_are_dismissed_together(night: AgentWorkspace) -> None:
    async def group(store: Store) -> None:
        jobs = [await store.run(ops.find_job, name) for name in ("fox.yaml", "elk.yaml")]
        await store.run(
            ops.group_jobs, NewBatch("pair_1", "pair", BatchKind.FILES), [job.id for job in jobs if job is not None]
        )

    night.store(group)
    assert "0 of 2 done, 1 needs attention" in call_e3("batch", "show", "pair", cwd=night.root).stdout
    assert call_e3("dismiss", "--batch", "pair", cwd=night.root).stdout == "◌ Dismissed  fox.yaml (2)\n"
    assert "attention" not in call_e3("batch", "ls", cwd=night.root).stdout
    assert json.loads(call_e3("batch", "show", "pair", "--json", cwd=night.root).stdout)["failed"] == 2


def test_removing_asks_first_and_leaves_results_and_what_has_not_ended(night: AgentWorkspace) -> None:
    picture = night.root / "jobs/finished/image/done.png"
    picture.write_bytes(b"picture")
    answer = call_e3("queue", "rm", "done", "fox", cwd=night.root)
    assert (answer.returncode, answer.stderr) == (2, "e3: Remove 2 jobs and their history? Say --yes\n")
    answer = call_e3("queue", "rm", "done", "fox", "waits", "--yes", cwd=night.root)
    assert answer.returncode == 1
    assert answer.stdout.splitlines() == ["done.yaml (1) is removed; 1 result stays on disk", "fox.yaml (2) is removed"]
    assert answer.stderr == "e3: waits.yaml: it waits already: cancel it first\n"
    assert picture.is_file()
    names = {row["config_name"] for row in json.loads(call_e3("queue", "ls", "--json", cwd=night.root).stdout)}
    assert names == {"owl.yaml", "elk.yaml", "waits.yaml"}
    assert json.loads(call_e3("queue", "rm", "elk", "--yes", "--json", cwd=night.root).stdout) == ["elk.yaml"]


def test_the_file_of_a_removed_job_is_not_taken_in_again(night: AgentWorkspace) -> None:
    path = drop(night, "bad.yaml", "job_type: T2I\n")
    assert call_e3("add", str(path), cwd=night.root).returncode == 1
    assert call_e3("queue", "rm", "bad", "--yes", cwd=night.root).returncode == 0
    assert (path.exists(), path.with_name("bad.yaml.removed").exists()) == (False, True)


def test_a_near_miss_is_answered_with_what_was_meant(night: AgentWorkspace) -> None:
    assert (
        call_e3("show", "fox", "--json", cwd=night.root).stdout == call_e3("show", "2", "--json", cwd=night.root).stdout
    )
    for command in (["show"], ["cancel"], ["retry"], ["dismiss"], ["queue", "rm", "--yes"], ["queue", "set-priority"]):
        end = ["1"] if command[-1] == "set-priority" else []
        answer = call_e3(*command, "fxo", *end, cwd=night.root)
        assert (answer.returncode, answer.stderr) == (1, "e3: there is no job 'fxo': did you mean fox.yaml?\n")
    assert call_e3("show", "zzzzzz", cwd=night.root).stderr == "e3: there is no job 'zzzzzz': see e3 queue ls\n"

    async def books(store: Store) -> None:
        await store.run(ops.create_batch, NewBatch("winter_tales", "Winter Tales", BatchKind.BOOK), None)

    night.store(books)
    assert "did you mean winter_tales?" in call_e3("book", "show", "winter_tails", cwd=night.root).stderr
    assert "did you mean winter_tales?" in call_e3("batch", "watch", "winter_tale", cwd=night.root).stderr
    said = call_e3("show", "winter_tales", cwd=night.root).stderr
    assert said == "e3: 'winter_tales' is a book and no job: see e3 book show winter_tales\n"


def test_jobs_without_an_agent_are_reported_on_stderr_and_not_in_json(night: AgentWorkspace, tmp_path: Path) -> None:
    file = tmp_path / "hen.yaml"
    file.write_text("job_type: T2I\nworkflow_id: picture\ninputs: {color: 3}\n", encoding="utf-8")
    assert call_e3("queue", "ls", cwd=night.root).stderr == NOBODY
    assert call_e3("add", str(file), cwd=night.root).stderr == NOBODY
    assert call_e3("queue", "ls", "--json", cwd=night.root).stderr == ""
    lock = AgentLock(night.root / "database" / "agents")
    try:
        assert call_e3("queue", "ls", cwd=night.root).stderr == ""
    finally:
        lock.release()
