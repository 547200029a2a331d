"""`e3 db backup`: a whole copy of one moment, whoever writes meanwhile; nothing else is ever under its name."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfyui_agent.store import copying
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import backup_store, migrate_store, open_store
from comfyui_agent.store.errors import BackupRefused
from comfyui_agent.store.sqlite import backup
from support.agents import AgentWorkspace
from support.places import by_hand, new_place
from support.stores import in_the_shell, submit_one, wish
from support.workspaces import call_e3, new_workspace


@pytest.fixture
def night(tmp_path: Path) -> AgentWorkspace:
    workspace = new_workspace(tmp_path / "night")
    workspace.submit_jobs([wish(f"job_{number}") for number in range(3)])
    return workspace


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with new_place(request.param, tmp_path, "busy") as place:
        migrate_store(place)
        yield place


def test_a_backup_is_a_database_with_every_row(place: str, tmp_path: Path) -> None:
    rows = ", ".join(f"('job_{number}', 'T2I', 'w', 'pending')" for number in range(3))
    by_hand(place, f"INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES {rows}")
    file, night = tmp_path / "safe.db", str(new_workspace(tmp_path / "night").root)
    answer = call_e3("db", "backup", str(file), "--json", "--database", place, "-C", night)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["bytes"] == file.stat().st_size
    listed = call_e3("queue", "ls", "--json", "--database", str(file), "-C", night)
    assert sorted(job["config_name"] for job in json.loads(listed.stdout)) == ["job_0", "job_1", "job_2"]
    assert os.name != "posix" or file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.glob("*safe*")) == ["safe.db"]


def test_an_existing_file_is_replaced_only_by_force_and_the_database_never(night: AgentWorkspace) -> None:
    file = night.root / "safe.db"
    file.write_text("mine")
    answer = call_e3("db", "backup", str(file), "-C", str(night.root))
    assert (answer.returncode, file.read_text()) == (1, "mine")
    assert answer.stderr.startswith(f"e3: {file} is there already: ")
    assert call_e3("db", "backup", "--force", str(night.database), "-C", str(night.root)).returncode == 1
    assert call_e3("db", "backup", "--force", str(file), "-C", str(night.root)).returncode == 0
    assert in_the_shell(file, "SELECT count(*) AS jobs FROM jobs") == [{"jobs": 3}]
    nowhere = call_e3("db", "backup", str(night.root / "no" / "safe.db"), "-C", str(night.root))
    assert (nowhere.returncode, "No such file" in nowhere.stderr) == (1, True)


async def test_it_is_of_one_moment_while_others_write(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PAGES_AT_ONCE", 20)
    monkeypatch.setattr(copying, "ROWS_AT_ONCE", 50)
    store = open_store(place)
    await store.run(ops.submit_jobs, [wish(f"early_{n}", metadata={"n": "x" * 900}) for n in range(500)])
    loop, written = asyncio.get_running_loop(), []

    def write_beside(share: float) -> None:
        asyncio.run_coroutine_threadsafe(submit_one(store, f"late_{len(written)}"), loop).result(20)
        written.append(share)

    file = tmp_path / "safe.db"
    await asyncio.to_thread(backup_store, place, file, progress=write_beside)
    assert len(written) > 5
    assert written == sorted(written), "it never had to begin anew"
    assert written[-1] == 1
    names = in_the_shell(file, "SELECT config_name FROM jobs WHERE config_name LIKE 'late%'")
    assert names == []
    assert in_the_shell(file, "SELECT count(*) AS jobs FROM jobs") == [{"jobs": 500}]
    assert in_the_shell(file, "SELECT count(*) AS told FROM events") == [{"told": 500}]
    assert in_the_shell(file, "SELECT jobs FROM job_counts WHERE status = 'pending'") == [{"jobs": 500}]
    await store.close()


def test_a_backup_that_fails_leaves_nothing(place: str, tmp_path: Path) -> None:
    def stop(_: float) -> None:
        raise KeyboardInterrupt

    by_hand(place, "INSERT INTO templates VALUES ('hash', '{}')")
    safe = tmp_path / "safe"
    safe.mkdir()
    with pytest.raises(KeyboardInterrupt):
        backup_store(place, safe / "one.db", progress=stop)
    assert list(safe.iterdir()) == []

    def meanwhile(_: float) -> None:
        (safe / "one.db").write_text("came meanwhile")

    with pytest.raises(BackupRefused):
        backup_store(place, safe / "one.db", progress=meanwhile)
    assert [path.name for path in safe.iterdir()] == ["one.db"]
    assert (safe / "one.db").read_text() == "came meanwhile"
    assert backup_store(place, safe / "two.db") > 0
