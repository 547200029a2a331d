"""`e3 doctor` finds each kind of trouble, says what to do, and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.engine import health_checks
from comfyui_agent.store.sqlite.migrator import MIGRATIONS, NEWEST, OURS
from support.agents import AgentWorkspace
from support.shared_servers import Servers
from support.stores import in_the_shell
from support.terminal import like_anyone
from support.workspaces import NOWHERE, call_e3, drop, everything_in, job_text, new_workspace, run_e3

HOLD_EXCLUSIVELY = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
database.execute("PRAGMA locking_mode = EXCLUSIVE")
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def night(tmp_path: Path) -> AgentWorkspace:
    """A workspace whose server is not there."""
    return new_workspace(tmp_path / "night")


@pytest.fixture
def at_work(servers: Servers, tmp_path: Path) -> AgentWorkspace:
    """A workspace whose server is there."""
    return new_workspace(tmp_path / "night", servers.url("sim"))


def examine(workspace: AgentWorkspace, *options: str) -> list[dict[str, Any]]:
    """All findings."""
    answer = call_e3("doctor", "--json", *options, cwd=workspace.root)
    assert answer.stderr == ""
    found: list[dict[str, Any]] = json.loads(answer.stdout)
    assert all(finding.keys() == {"name", "fine", "message"} for finding in found)
    assert answer.returncode == (0 if all(finding["fine"] for finding in found) else 1)
    return found


def troubles(workspace: AgentWorkspace, *options: str) -> dict[str, str]:
    """What needs attention, but for the server that is not there."""
    found = [each for each in examine(workspace, *options) if not each["fine"]]
    return {each["name"]: each["message"] for each in found if each["name"] != f"server {NOWHERE}"}


def change(workspace: AgentWorkspace, file: str, old: str, new: str) -> None:
    path = workspace.root / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_fresh_workspace_with_a_server_is_well(at_work: AgentWorkspace) -> None:
    answer = run_e3("doctor", cwd=at_work.root)
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[-1] == "All is well."
    assert all(line.startswith("● ") for line in lines[:-2])
    names = [line[2:].partition(":")[0] for line in lines[:-2]]
    for name in ("configuration", "job files", "result folders", "workflow wf_realistic_portrait", "database", "disk"):
        assert name in names
    assert f"● server {at_work.servers[0]}: ComfyUI 0.33.0" in lines
    assert f"● wf_text_to_video at server {at_work.servers[0]}: nodes and models are there" in lines


def test_as_json_it_is_one_document_and_nothing_else(at_work: AgentWorkspace) -> None:
    answer = run_e3("doctor", "--json", "-C", str(at_work.root))
    assert (answer.returncode, answer.stderr) == (0, "")
    assert {finding["fine"] for finding in json.loads(answer.stdout)} == {True}
    (at_work.root / "workflows/wf_text_to_video.json").unlink()
    answer = run_e3("doctor", "--json", "-C", str(at_work.root))
    assert (answer.returncode, answer.stderr) == (1, "")
    wrong = [finding for finding in json.loads(answer.stdout) if not finding["fine"]]
    assert [finding["name"] for finding in wrong] == ["workflow wf_text_to_video"]


# Configuration.


def test_a_configuration_that_is_not_yaml_is_named_with_its_line(night: AgentWorkspace) -> None:
    change(night, "config/global_config.yaml", "comfyui:", "comfyui: [")
    (trouble,) = troubles(night).values()
    assert trouble.startswith("config/global_config.yaml:")
    assert "it is not YAML" in trouble


def test_every_wrong_key_of_the_configuration_is_listed_with_what_would_be_right(night: AgentWorkspace) -> None:
    (night.root / "config/global_config.yaml").write_text("retry_limt: 3\npoll_interval_ms: soon\n", encoding="utf-8")
    found = examine(night)
    assert [finding["name"] for finding in found] == ["configuration", "configuration"]
    assert {finding["message"] for finding in found} == {
        "config/global_config.yaml:1: retry_limt: there is no such key; did you mean retry_limit?",
        "config/global_config.yaml:2: poll_interval_ms: 'soon' cannot be used: write milliseconds from 10 to 60000, "
        "such as 1000",
    }


def test_a_wrong_variable_is_named(night: AgentWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E3_RETRY_LIMIT", "many")
    (trouble,) = troubles(night).values()
    assert trouble.startswith("E3_RETRY_LIMIT: retry_limit: 'many' cannot be used")


def test_a_configuration_that_is_named_and_not_there_is_said(night: AgentWorkspace) -> None:
    assert "there is no file" in troubles(night, "--config", "config/no.yaml")["configuration"]


def test_without_a_configuration_the_defaults_hold(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = {each["name"]: each for each in examine(AgentWorkspace(tmp_path / "empty", []))}
    assert found["configuration"]["fine"]
    assert "e3 init" in found["configuration"]["message"]
    assert not found["job files"]["fine"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_workspace_that_is_not_there_is_a_usage_error_as_with_every_command(tmp_path: Path) -> None:
    answer = run_e3("doctor", "-C", "nowhere", cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (2, "e3: there is no folder nowhere\n")


# Folders, disk.


@pytest.mark.parametrize(("folder", "name"), [("jobs/processing", "job files"), ("jobs/finished", "result folders")])
def test_a_folder_that_is_gone_is_said(night: AgentWorkspace, folder: str, name: str) -> None:
    shutil.rmtree(night.root / folder)
    assert troubles(night) == {name: f"there is no folder {night.root / folder}: e3 init makes it"}
    assert not (night.root / folder).exists()


@pytest.mark.skipif(os.name != "posix", reason="rights of files")
@pytest.mark.parametrize(
    ("folder", "name"), [("jobs/processing/image", "job files"), ("jobs/finished", "result folders")]
)
def test_a_folder_that_may_not_be_written_is_said(night: AgentWorkspace, folder: str, name: str) -> None:
    (night.root / folder).chmod(0o500)
    answer = run_e3("doctor", cwd=night.root, preexec_fn=like_anyone)
    (night.root / folder).chmod(0o700)
    assert answer.returncode == 1
    words = f"△ {name}: {night.root / folder} cannot be used: give yourself the right to write there"
    assert words in answer.stdout.splitlines()


@pytest.mark.parametrize(
    ("free", "is_fine", "says"), [(100 * 1024**2, False, "make some"), (1024**3, True, "not much for a night")]
)
def test_a_disk_with_little_room_is_said(
    night: AgentWorkspace, monkeypatch: pytest.MonkeyPatch, free: int, is_fine: bool, says: str
) -> None:
    real = shutil.disk_usage
    monkeypatch.setattr(health_checks.shutil, "disk_usage", lambda path: real(path)._replace(free=free))
    (disk,) = [each for each in examine(night) if each["name"] == "disk"]
    assert disk["fine"] == is_fine
    assert says in disk["message"]
    assert f"{free / 1024**3:.1f} GB free" in disk["message"]


# Workflows.


def test_a_template_that_is_gone_is_said_and_the_others_are_looked_at(night: AgentWorkspace) -> None:
    (night.root / "workflows/wf_image_to_image.json").unlink()
    assert troubles(night) == {
        "workflow wf_image_to_image": "its template workflows/wf_image_to_image.json is not there: export one, "
        "Workflow → Export (API)"
    }


def test_a_template_as_the_editor_saves_it_says_how_to_export_it(night: AgentWorkspace) -> None:
    editor = {"nodes": [{"id": 1, "type": "KSampler"}], "links": [], "version": 0.4}
    (night.root / "workflows/wf_text_to_video.json").write_text(json.dumps(editor), encoding="utf-8")
    words = troubles(night)["workflow wf_text_to_video"]
    assert "it is in the editor's format" in words
    assert "Workflow → Export (API)" in words


@pytest.mark.parametrize(
    ("old", "new", "name", "says"),
    [
        ('seed: "5.seed"', 'seed: "5.sed"', "workflow wf_realistic_portrait", "5.sed"),
        ("[prompt, seed, steps]", "[prompt, seed, stepps]", "workflow wf_realistic_portrait", "stepps"),
        ("template_path: workflows/wf_real", "template: workflows/wf_real", "workflows", "template_path"),
        ("wf_realistic_portrait:", "wf_realistic_portrait: [", "workflows", "it is not YAML"),
    ],
)
def test_a_wrong_entry_of_workflows_yaml_is_said(
    night: AgentWorkspace, old: str, new: str, name: str, says: str
) -> None:
    change(night, "config/workflows.yaml", old, new)
    assert says in troubles(night)[name]


# Database, job files.


def test_no_database_is_no_trouble_and_none_is_made(night: AgentWorkspace) -> None:
    (night.root / "database").rmdir()
    (database,) = [each for each in examine(night) if each["name"] == "database"]
    assert database["fine"]
    assert database["message"].endswith("is not there yet: e3 run makes it")
    assert not (night.root / "database").exists()


def test_a_file_that_is_no_database_is_said_and_the_rest_is_looked_at(at_work: AgentWorkspace) -> None:
    at_work.database.write_bytes(b"not a database" * 500)
    found = examine(at_work)
    assert [each["name"] for each in found if not each["fine"]] == ["database"]
    assert f"server {at_work.servers[0]}" in [each["name"] for each in found]


def test_a_database_of_a_kind_that_e3_does_not_know_is_said(
    night: AgentWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("E3_DATABASE__URL", "mysql://artist:hunter2@db/e3")
    found = troubles(night)
    assert "mysql:// is no kind of database that E3 knows" in found["database"]
    assert "hunter2" not in str(found)


def test_what_db_check_finds_is_found(night: AgentWorkspace) -> None:
    call_e3("db", "migrate", cwd=night.root)
    in_the_shell(night.database, "UPDATE job_counts SET jobs = 9 WHERE status = 'done'")
    assert "e3 db recover" in troubles(night)["counts"]


def test_a_large_write_ahead_log_is_said(night: AgentWorkspace) -> None:
    call_e3("db", "migrate", cwd=night.root)
    log = night.database.with_name(f"{night.database.name}-wal")
    log.touch()
    os.truncate(log, 100 * 1024**2)
    assert troubles(night)["write-ahead log"].startswith("100 MB: ")


def test_a_rejected_file_is_listed_with_its_reason(night: AgentWorkspace) -> None:
    call_e3("db", "migrate", cwd=night.root)
    done = "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('knight.yaml', 'T2I', 'x', 'done')"
    in_the_shell(night.database, done)
    drop(night, "knight.yaml", job_text(workflow_id="nowhere"))
    (night.root / "jobs/processing/image/old.yaml.rejected").touch()
    assert run_e3("monitor", "--until-idle", cwd=night.root).returncode == 0
    [(what, words)] = troubles(night).items()
    assert what == "rejected files"
    assert words.startswith("jobs/processing/image/knight.yaml.rejected: ")
    assert "'nowhere' is not in workflows.yaml" in words
    assert words.endswith("; jobs/processing/image/old.yaml.rejected: why is not known any more")


def test_of_many_rejected_files_some_are_listed_and_all_are_counted(night: AgentWorkspace) -> None:
    for number in range(12):
        (night.root / f"jobs/processing/video/{number:02}.yaml.rejected").touch()
    words = troubles(night)["rejected files"]
    assert words.count(".yaml.rejected") == 5
    assert words.endswith("; and 7 more")


def test_what_lies_among_the_job_files_and_cannot_be_used_is_said(night: AgentWorkspace, tmp_path: Path) -> None:
    (night.root / "jobs/processing/image/a\x1b[2Jb.yaml").write_text(job_text(), encoding="utf-8")
    (night.root / "jobs/processing/image/linked").symlink_to(tmp_path)
    answer = call_e3("doctor", cwd=night.root)
    assert "control characters" in answer.stdout
    assert "it is a link to a folder" in answer.stdout
    assert "\x1b" not in answer.stdout


# Servers.


def test_a_server_that_is_down_is_said_with_what_to_do_and_without_its_password(
    night: AgentWorkspace, monkeypatch: pytest.MonkeyPatch, servers: Servers
) -> None:
    away = "http://artist:hunter2@127.0.0.1:9/?token=t0k3n"
    monkeypatch.setenv("E3_COMFYUI__SERVERS", f"{away},{servers.url('sim')}")
    found = examine(night)
    assert [each["name"] for each in found if not each["fine"]] == [f"server {NOWHERE}"]
    assert "Start it, or set comfyui.api_base_url" in str(found)
    assert "hunter2" not in str(found)
    assert "t0k3n" not in str(found)
    assert f"wf_text_to_video at server {servers.url('sim')}" in [each["name"] for each in found]


def test_an_address_that_is_none_is_said(night: AgentWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E3_COMFYUI__SERVERS", "gpu1:8188")
    assert "a server's address must look like" in troubles(night)["servers"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"auto"', '"no_such.safetensors"', "missing: it has no model no_such.safetensors for 1.ckpt_name"),
        ('"KSampler"', '"KSamplerOfMine"', "missing: it has no node KSamplerOfMine"),
    ],
    ids=["model", "node"],
)
def test_a_model_or_node_that_the_server_lacks_is_said(at_work: AgentWorkspace, old: str, new: str, says: str) -> None:
    change(at_work, "workflows/wf_realistic_portrait.json", old, new)
    change(at_work, "config/workflows.yaml", "    checkpoint: auto #", "    # checkpoint: auto #")
    assert troubles(at_work) == {f"wf_realistic_portrait at server {at_work.servers[0]}": says}


def test_a_model_that_only_a_default_names_is_looked_for_too(at_work: AgentWorkspace) -> None:
    change(at_work, "config/workflows.yaml", "checkpoint: auto #", "checkpoint: no_such.safetensors #")
    assert "no_such.safetensors" in str(troubles(at_work))


def test_a_model_of_the_template_that_a_default_replaces_is_not_asked_for(at_work: AgentWorkspace) -> None:
    change(at_work, "workflows/wf_realistic_portrait.json", '"auto"', '"left_from_export.safetensors"')
    assert troubles(at_work) == {}


# Nothing is changed.


def test_it_changes_nothing(at_work: AgentWorkspace) -> None:
    drop(at_work, "waits.yaml")
    drop(at_work, "bad.yaml", "job_type: [")
    call_e3("db", "migrate", cwd=at_work.root)
    before = everything_in(at_work.root)
    assert call_e3("doctor", cwd=at_work.root).returncode == 0
    assert everything_in(at_work.root) == before


def test_an_older_database_is_named_and_left_as_it_is(night: AgentWorkspace) -> None:
    in_the_shell(night.database, MIGRATIONS[1].read_text(encoding="utf-8"))
    in_the_shell(night.database, f"PRAGMA user_version = 1; PRAGMA application_id = {OURS}")
    before = everything_in(night.root)
    (words,) = [each["message"] for each in examine(night) if each["name"] == "database"]
    assert words == f"{night.database} has version 1: the next start of E3 brings it to {NEWEST}"
    assert everything_in(night.root) == before
    call_e3("db", "migrate", cwd=night.root)
    (words,) = [each["message"] for each in examine(night) if each["name"] == "database"]
    assert words == f"{night.database}, version {NEWEST}"


@pytest.fixture
def held(night: AgentWorkspace) -> Iterator[AgentWorkspace]:
    """A database that another program keeps to itself."""
    call_e3("db", "migrate", cwd=night.root)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_EXCLUSIVELY, str(night.database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    yield night
    holder.stdin.close()
    holder.wait(60)
    holder.stdout.close()


def test_a_database_that_another_program_keeps_to_itself_is_said_and_not_waited_for(held: AgentWorkspace) -> None:
    answer = run_e3("doctor", "--json", cwd=held.root, timeout=8)
    assert "locked" in {each["name"]: each["message"] for each in json.loads(answer.stdout)}["database"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "All is well."),
        (1, "1 thing needs attention."),
        (2, "2 things need attention."),
    ],
)
def test_the_last_line_says_how_much_needs_attention(at_work: AgentWorkspace, number: int, words: str) -> None:
    for name in ("wf_text_to_video", "wf_image_to_image")[:number]:
        (at_work.root / f"workflows/{name}.json").unlink()
    assert call_e3("doctor", cwd=at_work.root).stdout.splitlines()[-1] == words
