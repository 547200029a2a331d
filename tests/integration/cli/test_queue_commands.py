"""`e3 execute`, `e3 queue ls`, `e3 show` and `e3 db`, as a person or a script uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from comfyui_agent.sim.process import ServerProcess
from comfyui_agent.store import operations as ops
from support.agents import AgentWorkspace, check_promises, sized_picture
from support.stores import in_the_shell
from support.workspaces import call_e3 as e3

COLUMNS = (  # noqa: SIM905 - a list of words
    "id config_name job_type workflow_id priority status retries_attempted run_count retry_limit start_time end_time "
    "duration error_trace metadata worker_id lease_expires_at failure_class next_attempt_at server prompt_id batch_id "
    "batch_index outputs needs_regeneration created_at"
).split()


@pytest.fixture
def workspace(comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path) -> AgentWorkspace:
    """Three jobs done, one that failed because its workflow is not known, one that waits for nobody."""
    server = comfyui_simulator()
    workspace = AgentWorkspace(tmp_path / "night", [server.url])
    workspace.submit(3)
    workspace.store(lambda store: store.run(ops.submit_jobs, [_unknown_workflow()]))
    assert workspace.finish() == 1
    return workspace


def _unknown_workflow():  # type: ignore[no-untyped-def]
    from comfyui_agent.domain.jobs import NewJob

    return NewJob("lost.yaml", "T2I", "no_such_workflow")


def test_execute_works_everything_off_and_says_so(workspace: AgentWorkspace) -> None:
    log = workspace.log.read_text()
    assert log.count("● Done  job_") == 3
    assert "△ Needs attention  lost.yaml" in log
    assert "3 done, 1 needs attention, 0 pending." in log
    check_promises(workspace, 4, done=3)


def test_queue_ls_lists_what_needs_attention_first_and_counts(workspace: AgentWorkspace) -> None:
    answer = e3("queue", "ls", "-C", str(workspace.root))
    lines = answer.stdout.splitlines()
    assert answer.returncode == 0
    assert "lost.yaml" in lines[0]
    assert "is not in workflows.yaml" in lines[0]
    assert lines[-1] == "0 pending, 0 rendering, 3 done, 1 needs attention"
    assert len(lines) == 5


def test_queue_ls_as_json_is_an_array_of_rows(workspace: AgentWorkspace) -> None:
    rows = json.loads(e3("queue", "ls", "--json", "--status", "done", "-C", str(workspace.root)).stdout)
    assert {row["config_name"]: row["outputs"] for row in rows} == {
        f"job_0000{number}.yaml": [f"jobs/finished/image/job_0000{number}.png"] for number in range(3)
    }
    assert [row["end_time"] for row in rows] == sorted((row["end_time"] for row in rows), reverse=True)
    assert set(COLUMNS) <= set(rows[0])
    assert {row["status"] for row in rows} == {"done"}
    assert len(json.loads(e3("queue", "ls", "--json", "--limit", "2", "-C", str(workspace.root)).stdout)) == 2


def test_show_tells_the_whole_story_by_name_and_by_id(workspace: AgentWorkspace) -> None:
    shown = json.loads(e3("show", "job_00001.yaml", "--json", "-C", str(workspace.root)).stdout)
    assert shown["attempts"][0]["outcome"] == "done"
    assert shown["attempts"][0]["prompt_id"] == shown["prompt_id"]
    by_id = json.loads(e3("show", str(shown["id"]), "--json", "-C", str(workspace.root)).stdout)
    assert by_id == shown
    told = e3("show", "lost.yaml", "-C", str(workspace.root)).stdout
    assert "△ Needs attention: invalid" in told
    assert "runs         0, 0 of them retries" in told


def test_show_says_where_the_results_lie(workspace: AgentWorkspace) -> None:
    where = ("-C", str(workspace.root))
    [place] = e3("show", "job_00001.yaml", "--path", *where).stdout.splitlines()
    assert Path(place).is_absolute()
    assert Path(place).read_bytes().startswith(b"\x89PNG")
    assert json.loads(e3("show", "job_00001.yaml", "--path", "--json", *where).stdout) == [place]
    answer = e3("show", "lost.yaml", "--path", *where)
    assert (answer.returncode, answer.stdout, answer.stderr) == (1, "", "e3: lost.yaml has no result\n")


def test_show_of_an_unknown_job_is_one_line(workspace: AgentWorkspace) -> None:
    answer = e3("show", "nobody", "-C", str(workspace.root))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "e3: there is no job 'nobody': see e3 queue ls\n"


def test_db_check_is_content_and_notices_what_is_wrong(workspace: AgentWorkspace) -> None:
    fine = e3("db", "check", "-C", str(workspace.root))
    assert fine.returncode == 0, fine.stdout
    (workspace.root / "jobs/finished/image/job_00001.png").unlink()
    in_the_shell(workspace.database, "UPDATE job_counts SET jobs = 9 WHERE status = 'done';")
    wrong = e3("db", "check", "--json", "-C", str(workspace.root))
    found = {finding["name"]: finding for finding in json.loads(wrong.stdout)}
    assert wrong.returncode == 1
    assert [name for name, finding in found.items() if not finding["fine"]] == ["counts", "results"]
    assert "job_00001.yaml" in found["results"]["message"]
    assert e3("db", "recover", "-C", str(workspace.root)).returncode == 0
    assert "● counts" in e3("db", "check", "-C", str(workspace.root)).stdout


def test_db_recover_lets_go_of_what_a_dead_agent_holds(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    workspace = AgentWorkspace(tmp_path, [comfyui_simulator("--render-seconds", "30").url])
    workspace.submit(2)
    agent = workspace.start()
    workspace.wait_for(lambda: workspace.counts().processing == 2, "two at work")
    assert "Nothing to recover" in e3("db", "recover", "-C", str(tmp_path)).stdout
    workspace.kill(agent)
    checked = e3("db", "check", "-C", str(tmp_path))
    assert checked.returncode == 1
    assert "2 jobs have no living agent" in checked.stdout
    assert e3("db", "recover", "-C", str(tmp_path)).stdout == "2 jobs were let go and wait again.\n"
    assert workspace.counts().pending == 2


def test_db_migrate_makes_a_database_and_says_when_there_is_nothing_to_do(tmp_path: Path) -> None:
    first = e3("db", "migrate", cwd=tmp_path)
    assert "was brought from version 0 to" in first.stdout
    assert "is up to date" in e3("db", "migrate", cwd=tmp_path).stdout


@pytest.mark.parametrize("command", [["queue", "ls"], ["show", "x"], ["db", "check"], ["db", "recover"]])
def test_without_a_database_each_command_says_so_and_makes_none(tmp_path: Path, command: list[str]) -> None:
    answer = e3(*command, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert len(answer.stderr.splitlines()) == 1
    assert "there is no database" in answer.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "environment", "says"),
    [
        (["--server", "ftp://x"], {}, "a server's address must look like"),
        (["--database", "mysql://host/e3"], {}, "mysql:// is no kind of database"),
        (["-C", "nowhere"], {}, "there is no folder nowhere"),
        ([], {"E3_RETRY_LIMIT": "x"}, "E3_RETRY_LIMIT: retry_limit: 'x'"),
    ],
)
def test_execute_refuses_nonsense_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], environment: dict[str, str], says: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    answer = e3("execute", "--until-idle", *flags, cwd=tmp_path)
    assert answer.returncode in (1, 2)
    assert says in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_python_m_execute_is_the_same(comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path) -> None:
    workspace = AgentWorkspace(tmp_path, [comfyui_simulator().url])
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "wf.json").write_text(json.dumps({"prompt": sized_picture()}))
    e3("db", "migrate", cwd=tmp_path)
    insert = "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('k.yaml', 'T2I', 'wf', 'pending');"
    in_the_shell(workspace.database, insert)
    command = [sys.executable, "-m", "comfyui_agent.execute", "--until-idle", "--server", workspace.servers[0]]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "jobs/finished/image/k.png").is_file()
    assert workspace.job("k.yaml").run_count == 1
