"""Starts that go wrong: a server that is not up yet, and databases that cannot be used."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfyui_agent.store.connect import migrate_store
from support.agents import AgentWorkspace, check_promises, renders
from support.breakage import Make, Start, is_root, small_disk, tree, wait_for_end, wait_told
from support.sampling import some
from support.workspaces import call_e3


def test_a_server_that_comes_up_later_gets_every_job_once(start_server: Start, make_workspace: Make) -> None:
    server = start_server()
    server.kill()
    workspace = make_workspace(server.url)
    workspace.submit(6)
    agent = workspace.start("--until-idle")
    wait_told(workspace, "server.down", server=server.url)
    assert [job.run_count for job in workspace.jobs()] == [0] * 6
    server.start()
    assert wait_for_end(workspace, agent) == 0
    jobs = check_promises(workspace, 6)
    assert [(job.run_count, job.retries_attempted) for job in jobs] == [(1, 0)] * 6
    assert renders([server.output_dir]) == 6


COMMANDS = [
    pytest.param(("execute", "--until-idle", "--server", "http://127.0.0.1:9"), id="execute"),
    pytest.param(("queue", "ls"), id="queue-ls"),
    pytest.param(("db", "check"), id="db-check"),
]


def filled(path: Path) -> None:
    """A database with some jobs, as it lies there when nobody has it open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    AgentWorkspace(path.parent.parent, []).submit(200)
    assert sorted(tree(path.parent)) == [path.name]


def newer(path: Path) -> str:
    filled(path)
    _execute(path, "PRAGMA user_version = 99")
    return "version 99"


def corrupt(path: Path) -> str:
    """The first page, with the schema, is sound; the rest is noise."""
    filled(path)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + random.Random(1).randbytes(len(content) - 4096))
    return "corrupt"


def cut_short(path: Path) -> str:
    filled(path)
    path.write_bytes(path.read_bytes()[: 4096 * 3])
    return "corrupt"


def a_text(path: Path) -> str:
    path.parent.mkdir(parents=True)
    path.write_text("dear diary, " * 1000)
    return "not a database"


def of_another_program(path: Path) -> str:
    path.parent.mkdir(parents=True)
    _execute(path, "CREATE TABLE recipes (name TEXT)")
    return "another program"


def with_jobs_of_another_kind(path: Path) -> str:
    path.parent.mkdir(parents=True)
    _execute(path, "CREATE TABLE jobs (title TEXT, salary INTEGER)")
    return "another program"


def _execute(path: Path, statement: str) -> None:
    database = sqlite3.connect(path)
    database.execute(statement)
    database.commit()
    database.close()


def check_refused(root: Path, command: tuple[str, ...], words: str) -> None:
    before = tree(root)
    done = call_e3(*command, "-C", str(root))
    assert done.returncode == 1, done
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("e3: ")
    assert words in lines[0]
    assert str(root / "database") in lines[0]
    assert done.stdout == "" or command[0] == "execute"
    after = tree(root)
    assert {name: content for name, content in after.items() if content} == before, sorted(after)


@pytest.mark.parametrize("command", some(COMMANDS, 3))
@pytest.mark.parametrize("make", [newer, a_text, of_another_program, with_jobs_of_another_kind])
def test_a_database_that_is_not_ours_to_use_is_one_line_and_stays_as_it_is(
    server_kind: str, tmp_path: Path, make: Callable[[Path], str], command: tuple[str, ...]
) -> None:
    _without_servers(server_kind)
    root = tmp_path / "workspace"
    words = make(root / "database" / "comfyui_agent.db")
    check_refused(root, command, words)


@pytest.mark.parametrize("command", some(COMMANDS[:2], 2))
@pytest.mark.parametrize("make", [corrupt, cut_short])
def test_a_corrupt_database_is_one_line_and_stays_as_it_is(
    server_kind: str, tmp_path: Path, make: Callable[[Path], str], command: tuple[str, ...]
) -> None:
    _without_servers(server_kind)
    root = tmp_path / "workspace"
    words = make(root / "database" / "comfyui_agent.db")
    check_refused(root, command, words)


@pytest.mark.parametrize("make", [corrupt, cut_short])
def test_a_check_of_a_corrupt_database_says_what_to_do(
    server_kind: str, tmp_path: Path, make: Callable[[Path], str]
) -> None:
    _without_servers(server_kind)
    root = tmp_path / "workspace"
    make(root / "database" / "comfyui_agent.db")
    before = tree(root)
    done = call_e3("db", "check", "-C", str(root))
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1
    assert "restore" in done.stdout + done.stderr
    assert {name: content for name, content in tree(root).items() if content} == before


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A workspace whose database can be read and not written, by root neither."""
    root = tmp_path / "workspace"
    if is_root():
        with small_disk(root / "database", "4m") as disk:
            migrate_store(root / "database" / "comfyui_agent.db")
            disk.lock()
            yield root
            disk.unlock()
        return
    migrate_store(root / "database" / "comfyui_agent.db")
    (root / "database" / "comfyui_agent.db").chmod(0o444)
    (root / "database").chmod(0o555)
    yield root
    (root / "database").chmod(0o755)


@pytest.mark.parametrize("command", some(COMMANDS, 3))
def test_a_read_only_database_is_one_line(server_kind: str, read_only: Path, command: tuple[str, ...]) -> None:
    _without_servers(server_kind)
    check_refused(read_only, command, "read-only")


def _without_servers(server_kind: str) -> None:
    if server_kind == "real":
        pytest.skip("no server is part of this")
