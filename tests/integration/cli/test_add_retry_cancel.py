"""`e3 add`, `e3 retry`, `e3 cancel`, `e3 queue set-priority`: what people want of the queue, and what they are told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.sim.process import ServerProcess
from support.agents import AgentWorkspace, leave, server_queue, wait_until
from support.pictures import NO_PICTURES
from support.shared_servers import Servers
from support.stores import in_the_shell
from support.workspaces import call_e3, drop, job_text, new_workspace, run_e3, start_e3

NOBODY = "e3: no agent runs here: start one with e3 run\n"


@pytest.fixture
def night(tmp_path: Path) -> AgentWorkspace:
    """A workspace where nobody renders."""
    return new_workspace(tmp_path / "night")


def elsewhere(tmp_path: Path, name: str, text: str | None = None) -> Path:
    """A job file outside the workspace."""
    path = tmp_path / name
    path.write_text(job_text() if text is None else text, encoding="utf-8")
    return path


def names_in_order(workspace: AgentWorkspace, status: str = "pending") -> list[str]:
    rows = json.loads(call_e3("queue", "ls", "--json", "--status", status, cwd=workspace.root).stdout)
    return [row["config_name"] for row in rows]


def by_hand(workspace: AgentWorkspace, name: str, status: str, **columns: Any) -> None:
    """A row as a person makes it."""
    columns = {"config_name": name, "job_type": "T2I", "workflow_id": "picture", "status": status, **columns}
    call_e3("db", "migrate", cwd=workspace.root)
    values = ", ".join(json.dumps(value).replace('"', "'") for value in columns.values())
    in_the_shell(workspace.database, f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({values})")


# e3 add


@pytest.mark.parametrize(("data", "words"), NO_PICTURES.values(), ids=NO_PICTURES)
def test_a_job_whose_picture_is_none_is_refused_in_one_line(night: AgentWorkspace, data: bytes, words: str) -> None:
    picture = night.root / "x.png"
    picture.write_bytes(data)
    os.utime(picture, (1, 1))  # nobody writes it any more
    inputs = "inputs:\n  image: x.png\n  prompt: a fox\n  seed: 1\n"
    file = elsewhere(night.root, "job.yaml", f"job_type: I2I\nworkflow_id: wf_image_to_image\n{inputs}")
    answer = call_e3("add", str(file), cwd=night.root)
    [line] = answer.stderr.splitlines()
    assert (answer.returncode, answer.stdout, words in line) == (1, "", True), line
    assert line.startswith("e3: job.yaml: job.yaml:4: inputs.image: ")


def test_wildcards_that_include_each_other_are_refused_in_one_line(night: AgentWorkspace) -> None:
    (night.root / "wildcards").mkdir(exist_ok=True)
    for name, other in (("loop", "pool"), ("pool", "loop")):
        (night.root / "wildcards" / f"{name}.txt").write_text(f"__{other}__\n")
    inputs = "inputs:\n  prompt: a __loop__\n  seed: 1\n"
    file = elsewhere(night.root, "job.yaml", f"job_type: T2I\nworkflow_id: wf_realistic_portrait\n{inputs}")
    answer = call_e3("add", str(file), cwd=night.root)
    [line] = answer.stderr.splitlines()
    assert "inputs.prompt: the wildcard __loop__ includes itself: loop → pool → loop" in line
    assert (answer.returncode, names_in_order(night)) == (1, [])


def test_add_copies_a_file_from_elsewhere_and_queues_it(night: AgentWorkspace, tmp_path: Path) -> None:
    file = elsewhere(tmp_path, "knight.yaml")
    answer = run_e3("add", "knight.yaml", "-C", str(night.root), cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, NOBODY)
    job = night.job("knight.yaml")
    assert answer.stdout == f"○ Pending  knight.yaml ({job.id})\n"
    assert (job.status, job.source) == (JobStatus.PENDING, "jobs/processing/image/knight.yaml")
    assert (night.root / "jobs/processing/image/knight.yaml").read_bytes() == file.read_bytes()
    assert sorted(path.name for path in (night.root / "jobs/processing/image").iterdir()) == ["knight.yaml"]


def test_add_copies_to_the_folder_of_its_kind(night: AgentWorkspace, tmp_path: Path) -> None:
    call_e3("add", str(elsewhere(tmp_path, "film.yaml", job_text(job_type="t2v"))), cwd=night.root)
    assert (night.root / "jobs/processing/video/film.yaml").is_file()


def test_add_takes_a_file_that_is_there_already_where_it_is(night: AgentWorkspace) -> None:
    file = drop(night, "knight.yaml", kind="video")
    answer = call_e3("add", "jobs/processing/video/knight.yaml", cwd=night.root)
    assert answer.returncode == 0
    assert night.job("knight.yaml").source == "jobs/processing/video/knight.yaml"
    assert file.is_file()
    assert list((night.root / "jobs/processing/image").iterdir()) == []


def test_the_same_file_twice_is_one_job(night: AgentWorkspace, tmp_path: Path) -> None:
    file = str(elsewhere(tmp_path, "knight.yaml"))
    first = call_e3("add", file, cwd=night.root)
    again = call_e3("add", file, file, cwd=night.root)
    assert (again.returncode, again.stdout) == (0, first.stdout * 2)
    assert len(night.jobs()) == 1


def test_the_file_in_place_that_was_changed_while_it_waits_changes_the_job(night: AgentWorkspace) -> None:
    file = drop(night, "knight.yaml", job_text(priority=7))
    call_e3("add", str(file), cwd=night.root)
    drop(night, "knight.yaml", job_text(priority=3))
    assert call_e3("add", str(file), cwd=night.root).returncode == 0
    assert (len(night.jobs()), night.job("knight.yaml").priority) == (1, 3)


def test_another_file_of_a_name_that_waits_is_refused_and_nothing_is_overwritten(
    night: AgentWorkspace, tmp_path: Path
) -> None:
    kept = drop(night, "knight.yaml", job_text(priority=7))
    call_e3("add", str(kept), cwd=night.root)
    before = kept.read_bytes()
    answer = call_e3("add", str(elsewhere(tmp_path, "knight.yaml", job_text(priority=1))), cwd=night.root)
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("e3: knight.yaml: ")
    assert "is there already and says something else" in line
    assert (kept.read_bytes(), night.job("knight.yaml").priority) == (before, 7)


def test_a_name_in_another_kinds_folder_is_refused(night: AgentWorkspace) -> None:
    call_e3("add", str(drop(night, "knight.yaml")), cwd=night.root)
    answer = call_e3("add", str(drop(night, "knight.yaml", kind="video")), cwd=night.root)
    assert answer.returncode == 1
    assert "the name belongs to jobs/processing/image/knight.yaml" in answer.stderr
    assert len(night.jobs()) == 1


def test_another_file_of_a_name_that_is_done_makes_another_take(night: AgentWorkspace, tmp_path: Path) -> None:
    put_away = night.root / "jobs/finished/image/knight.yaml"
    put_away.write_text(job_text(priority=7))
    by_hand(night, "knight.yaml", "done", source="jobs/finished/image/knight.yaml", digest="7")
    answer = call_e3("add", str(elsewhere(tmp_path, "knight.yaml")), cwd=night.root)
    assert (answer.returncode, answer.stderr) == (0, NOBODY)
    assert (len(night.jobs()), night.job("knight.yaml").status) == (1, JobStatus.PENDING)
    assert put_away.read_text() == job_text(priority=7)


BAD_FILES = [
    ("job_type: [", ":2: it is not YAML"),
    ("", "it is empty"),
    ("- a\n- b\n", "it is not a mapping"),
    ("workflow_id: picture\n", "job_type: is missing"),
    (job_text(job_type="T2X"), "T2X"),
    (job_text(workflow_id="pictre"), "did you mean picture?"),
    (job_text(inputs={"colour": 7}), "inputs.colour: "),
    (job_text(outputs={"file_path": "../../x.png"}), "leads out of the workspace"),
    (job_text(prio=3), "prio: there is no such key; did you mean priority?"),
    ("job_type: T2I\nworkflow_id: picture\ninputs: {color: 1}\x00", "YAML"),
    ("[" * 5000, "nested more than"),
]


@pytest.mark.parametrize(("text", "says"), BAD_FILES)
def test_a_bad_file_from_elsewhere_is_one_line_and_leaves_nothing(
    night: AgentWorkspace, tmp_path: Path, text: str, says: str
) -> None:
    answer = call_e3("add", str(elsewhere(tmp_path, "bad.yaml", text)), cwd=night.root)
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("e3: bad.yaml: ")
    assert says in line
    assert night.jobs() == []
    assert list((night.root / "jobs/processing/image").iterdir()) == []


def test_a_bad_file_in_place_becomes_a_job_that_needs_attention(night: AgentWorkspace) -> None:
    answer = call_e3("add", str(drop(night, "bad.yaml", "job_type: T2I\n")), cwd=night.root)
    assert answer.returncode == 1
    assert "workflow_id: is missing" in answer.stderr
    assert (night.job("bad.yaml").status, night.job("bad.yaml").run_count) == (JobStatus.FAILED, 0)


def test_a_file_from_elsewhere_whose_result_would_go_where_anothers_goes_leaves_nothing_either(
    night: AgentWorkspace, tmp_path: Path
) -> None:
    same = {"file_path": "jobs/finished/image/same.png"}
    call_e3("add", str(elsewhere(tmp_path, "first.yaml", job_text(outputs=same))), cwd=night.root)
    answer = call_e3("add", str(elsewhere(tmp_path, "second.yaml", job_text(outputs=same))), cwd=night.root)
    assert answer.returncode == 1
    assert "belongs to the job first.yaml" in answer.stderr
    assert [job.config_name for job in night.jobs()] == ["first.yaml"]


def test_a_file_that_is_not_there_or_has_another_ending_is_one_line_each(night: AgentWorkspace, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    answer = call_e3("add", str(tmp_path / "gone.yaml"), str(tmp_path / "notes.txt"), cwd=night.root)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.splitlines() == [
        f"e3: gone.yaml: there is no file {tmp_path / 'gone.yaml'}",
        "e3: notes.txt: its name must end in .yaml or .yml",
    ]


def test_a_folder_is_said_to_be_one(night: AgentWorkspace, tmp_path: Path) -> None:
    (tmp_path / "prompts.yaml").mkdir()
    answer = call_e3("add", str(tmp_path / "prompts.yaml"), cwd=night.root)
    assert answer.returncode == 1
    assert "is a folder" in answer.stderr


@pytest.mark.skipif(os.name != "posix", reason="a pipe as a file")
def test_a_pipe_a_link_and_a_huge_file_are_refused_without_waiting(night: AgentWorkspace, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "link.yaml").symlink_to(elsewhere(tmp_path, "real.yaml"))
    elsewhere(tmp_path, "huge.yaml", "# " + "x" * 2 * 1024**2)
    files = [str(tmp_path / name) for name in ("pipe.yaml", "link.yaml", "huge.yaml")]
    answer = call_e3("add", *files, cwd=night.root)
    assert answer.returncode == 1
    assert [line.partition(": /")[0] for line in answer.stderr.splitlines()] == [
        "e3: pipe.yaml",
        "e3: link.yaml",
        "e3: huge.yaml",
    ]
    assert night.jobs() == []


def test_many_files_at_once_the_good_ones_are_queued_in_their_order(night: AgentWorkspace, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    for number in range(300):
        (prompts / f"take_{number:03}.yaml").write_text(job_text(number), encoding="utf-8")
    (prompts / "take_150.yaml").write_text("job_type: [", encoding="utf-8")
    answer = call_e3("add", *(str(path) for path in sorted(prompts.iterdir())), "--json", cwd=night.root)
    assert answer.returncode == 1
    rows = json.loads(answer.stdout)
    good = [f"take_{number:03}.yaml" for number in range(300) if number != 150]
    assert [row["config_name"] for row in rows] == good
    assert {row["status"] for row in rows} == {"pending"}
    assert answer.stderr.startswith("e3: take_150.yaml: ")
    assert len(answer.stderr.splitlines()) == 1
    assert [job.config_name for job in night.jobs()] == good


def test_names_that_a_shell_or_a_terminal_would_take_for_more_are_only_names(
    night: AgentWorkspace, tmp_path: Path
) -> None:
    names = ["[red]knight.yaml", "$(touch x).yaml", "two words.yaml", "ритер 🐎.yaml", "-C.yaml", "7.yaml"]
    files = [str(elsewhere(tmp_path, name, job_text(number))) for number, name in enumerate(names)]
    answer = call_e3("add", "--", *files, cwd=night.root)
    assert (answer.returncode, answer.stderr) == (0, NOBODY)
    assert names_in_order(night) == names
    for name in names:
        assert name in call_e3("show", "--", name, cwd=night.root).stdout


# e3 queue set-priority


def test_set_priority_changes_the_order_by_name_and_by_id(night: AgentWorkspace) -> None:
    for name in ("a.yaml", "b.yaml", "c.yaml"):
        call_e3("add", str(drop(night, name)), cwd=night.root)
    assert names_in_order(night) == ["a.yaml", "b.yaml", "c.yaml"]
    answer = call_e3("queue", "set-priority", "c.yaml", "1", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (0, "○ Pending  c.yaml  priority 1\n")
    changed = call_e3("queue", "set-priority", str(night.job("b.yaml").id), "2", "--json", cwd=night.root)
    assert (json.loads(changed.stdout)["config_name"], json.loads(changed.stdout)["priority"]) == ("b.yaml", 2)
    assert names_in_order(night) == ["c.yaml", "b.yaml", "a.yaml"]


def test_a_negative_priority_can_be_given(night: AgentWorkspace) -> None:
    call_e3("add", str(drop(night, "a.yaml")), cwd=night.root)
    assert call_e3("queue", "set-priority", "--", "a.yaml", "-5", cwd=night.root).returncode == 0
    assert night.job("a.yaml").priority == -5


# e3 retry


def test_retry_by_name_submits_a_failed_or_cancelled_job_again(night: AgentWorkspace) -> None:
    by_hand(night, "broke.yaml", "failed", failure_class="execution", run_count=3, retries_attempted=2)
    by_hand(night, "stopped.yaml", "failed", failure_class="cancelled")
    answer = run_e3("retry", "broke.yaml", "stopped.yaml", cwd=night.root)
    assert (answer.returncode, answer.stderr) == (0, "")
    broke, stopped = night.job("broke.yaml"), night.job("stopped.yaml")
    assert answer.stdout == f"○ Pending  broke.yaml ({broke.id})\n○ Pending  stopped.yaml ({stopped.id})\n"
    assert (broke.status, broke.retries_attempted, broke.run_count) == (JobStatus.PENDING, 0, 3)
    assert stopped.status is JobStatus.PENDING


def test_a_cancelled_job_that_was_submitted_again_is_not_shown_as_cancelled(night: AgentWorkspace) -> None:
    by_hand(night, "stopped.yaml", "pending")
    call_e3("cancel", "stopped.yaml", cwd=night.root)
    call_e3("retry", "stopped.yaml", cwd=night.root)
    assert "cancelled" not in call_e3("queue", "ls", cwd=night.root).stdout


def test_retry_failed_leaves_cancelled_jobs_alone(night: AgentWorkspace) -> None:
    by_hand(night, "broke.yaml", "failed", failure_class="execution")
    by_hand(night, "stopped.yaml", "failed", failure_class="cancelled")
    answer = call_e3("retry", "--failed", "--json", cwd=night.root)
    assert answer.returncode == 0
    assert [row["config_name"] for row in json.loads(answer.stdout)] == ["broke.yaml"]
    assert names_in_order(night, "failed") == ["stopped.yaml"]
    again = call_e3("retry", "--failed", cwd=night.root)
    assert (again.returncode, again.stdout) == (0, "Nothing needs attention.\n")
    assert json.loads(call_e3("retry", "--failed", "--json", cwd=night.root).stdout) == []


def test_retry_reads_a_file_that_was_mended(night: AgentWorkspace) -> None:
    file = drop(night, "knight.yaml", job_text(inputs={"colour": 7}))
    call_e3("add", str(file), cwd=night.root)
    assert night.job("knight.yaml").status is JobStatus.FAILED
    drop(night, "knight.yaml", job_text(7))
    assert call_e3("retry", "knight.yaml", cwd=night.root).returncode == 0
    job = night.job("knight.yaml")
    assert (job.status, job.error_trace, job.inputs) == (JobStatus.PENDING, None, '{"1.color":7}')


def test_retry_of_a_file_that_is_still_bad_says_why_and_is_exit_1(night: AgentWorkspace) -> None:
    call_e3("add", str(drop(night, "knight.yaml", job_text(inputs={"colour": 7}))), cwd=night.root)
    answer = call_e3("retry", "--failed", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("e3: knight.yaml: jobs/processing/image/knight.yaml:")
    assert night.job("knight.yaml").status is JobStatus.FAILED


def test_retry_of_a_file_whose_result_belongs_to_another_job_says_why_and_is_exit_1(night: AgentWorkspace) -> None:
    same = {"file_path": "jobs/finished/image/same.png"}
    call_e3("add", str(drop(night, "first.yaml", job_text(outputs=same))), cwd=night.root)
    call_e3("add", str(drop(night, "second.yaml", job_text(outputs=same))), cwd=night.root)
    answer = call_e3("retry", "second.yaml", cwd=night.root)
    assert answer.returncode == 1
    assert "belongs to the job first.yaml" in answer.stderr


def test_retry_after_workflows_yaml_was_mended_uses_what_it_says_now(night: AgentWorkspace) -> None:
    call_e3("add", str(drop(night, "knight.yaml", job_text(inputs={"colour": 7}))), cwd=night.root)
    recipes = night.root / "config/workflows.yaml"
    entry = '\npicture:\n  template_path: workflows/picture.json\n  inputs:\n    colour: "1.color"\n'
    recipes.write_text(recipes.read_text(encoding="utf-8") + entry, encoding="utf-8")
    answer = call_e3("retry", "--failed", cwd=night.root)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert night.job("knight.yaml").inputs == '{"1.color":7}'


def test_retry_of_a_bad_file_that_is_gone_says_so(night: AgentWorkspace) -> None:
    file = drop(night, "knight.yaml", "job_type: [")
    call_e3("add", str(file), cwd=night.root)
    file.unlink()
    answer = call_e3("retry", "knight.yaml", cwd=night.root)
    assert answer.returncode == 1
    assert "its file jobs/processing/image/knight.yaml is gone" in answer.stderr


@pytest.mark.parametrize("status", ["pending", "processing", "done"])
def test_retry_of_a_job_that_has_not_failed_is_one_line(night: AgentWorkspace, status: str) -> None:
    by_hand(night, "knight.yaml", status)
    answer = call_e3("retry", "knight.yaml", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("e3: knight.yaml: it ")
    assert answer.stderr.endswith(": nothing to retry\n")
    assert night.job("knight.yaml").status is JobStatus(status)


@pytest.mark.slow
def test_a_job_that_failed_is_rendered_after_it_was_mended(servers: Servers, tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night", servers.url("sim"))
    drop(night, "knight.yaml", job_text(inputs={"colour": 7}))
    assert run_e3("run", "--until-idle", cwd=night.root).returncode == 1
    drop(night, "knight.yaml", job_text(7))
    assert run_e3("retry", "--failed", cwd=night.root).returncode == 0
    assert run_e3("run", "--until-idle", cwd=night.root).returncode == 0
    assert (night.root / "jobs/finished/image/knight.png").is_file()


# e3 cancel


def test_cancel_of_a_job_that_waits(night: AgentWorkspace) -> None:
    file = drop(night, "knight.yaml")
    call_e3("add", str(file), cwd=night.root)
    answer = run_e3("cancel", "knight.yaml", cwd=night.root)
    job = night.job("knight.yaml")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert (job.status, job.failure_class) == (JobStatus.FAILED, "cancelled")
    assert file.is_file()
    again = call_e3("cancel", "knight.yaml", cwd=night.root)
    assert again.returncode == 1


def test_cancel_says_that_it_is_cancelled(night: AgentWorkspace) -> None:
    call_e3("add", str(drop(night, "knight.yaml")), cwd=night.root)
    assert "ancelled" in call_e3("cancel", "knight.yaml", cwd=night.root).stdout


def test_a_cancelled_job_is_not_taken_in_again_from_its_file(servers: Servers, tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night", servers.url("sim"))
    call_e3("add", str(drop(night, "knight.yaml")), cwd=night.root)
    call_e3("cancel", "knight.yaml", cwd=night.root)
    assert run_e3("run", "--until-idle", cwd=night.root).returncode == 0
    assert night.job("knight.yaml").run_count == 0


@pytest.fixture
def rendering(comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path) -> Iterator[AgentWorkspace]:
    """One job that a server renders for a minute, one that waits there, and a prompt of a stranger behind them."""
    workspace = new_workspace(tmp_path / "night", comfyui_simulator("--render-seconds", "60").url)
    for name in ("runs.yaml", "waits.yaml"):
        call_e3("add", str(drop(workspace, name)), cwd=workspace.root)
    start_e3(workspace, "execute")
    wait_until(lambda: len(server_queue(workspace.servers[0]).all) == 2, "two prompts at the server")
    yield workspace
    workspace.stop_all()


@pytest.mark.timing
def test_cancel_takes_back_the_prompt_at_the_server_and_no_other(rendering: AgentWorkspace) -> None:
    url = rendering.servers[0]
    running, waiting = server_queue(url).running, server_queue(url).pending
    answer = call_e3("cancel", "runs.yaml", cwd=rendering.root)
    assert answer.returncode == 0
    wait_until(lambda: server_queue(url).running == waiting, "the next prompt to run")
    assert running[0] not in server_queue(url).all
    assert call_e3("cancel", "waits.yaml", cwd=rendering.root).returncode == 0
    wait_until(lambda: not server_queue(url).all, "an empty server")
    assert {job.failure_class for job in rendering.jobs()} == {"cancelled"}
    assert leave(rendering.processes[0]) < 4


def test_cancel_of_a_job_that_is_done_is_exit_1(night: AgentWorkspace) -> None:
    by_hand(night, "knight.yaml", "done")
    answer = call_e3("cancel", "knight.yaml", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "e3: knight.yaml: it is done already\n"


# Unknown names, wrong words.


def test_an_unknown_name_is_one_line_and_exit_1(night: AgentWorkspace) -> None:
    by_hand(night, "knight.yaml", "failed")
    commands = (["show"], ["retry"], ["cancel"], ["queue", "set-priority"])
    for command, name in product(commands, ("nobody", "9999", "99999999999999999999", "", "zzzzz")):
        number = ["3"] if "set-priority" in command else []
        answer = call_e3(*command, name, *number, cwd=night.root)
        assert (answer.returncode, answer.stdout) == (1, ""), answer
        assert answer.stderr == f"e3: there is no job {name!r}: see e3 queue ls\n", answer


def test_one_unknown_name_among_several_and_nothing_is_done(night: AgentWorkspace) -> None:
    by_hand(night, "knight.yaml", "pending")
    assert call_e3("cancel", "knight.yaml", "nobody", cwd=night.root).returncode == 1
    assert night.job("knight.yaml").status is JobStatus.PENDING


WRONG_WORDS = [
    ["add"],
    ["retry"],
    ["retry", "--failed", "knight.yaml"],
    ["cancel"],
    ["queue", "set-priority"],
    ["queue", "set-priority", "knight.yaml"],
    ["queue", "set-priority", "knight.yaml", "soon"],
    ["queue", "set-priority", "knight.yaml", "99999999999"],
    ["queue", "ls", "--status", "asleep"],
    ["queue", "ls", "--limit", "0"],
    ["queue", "lst"],
    ["show"],
    ["show", "a", "b"],
    ["init", "a", "b"],
    ["doctor", "night"],
    ["run", "--unitl-idle"],
    ["rnu"],
    ["workflow", "inspect"],
    ["servers", "pause"],
    ["db", "chekc"],
]


def test_a_wrong_word_is_one_line_and_exit_2(tmp_path: Path) -> None:
    for command in WRONG_WORDS:
        answer = call_e3(*command, cwd=tmp_path)
        assert (answer.returncode, answer.stdout) == (2, ""), answer
        assert len(answer.stderr.splitlines()) == 1, answer
        assert answer.stderr.startswith("e3: "), answer
        assert list(tmp_path.iterdir()) == [], answer


@pytest.mark.parametrize("group", ["queue", "db", "workflow"])
def test_a_group_without_a_command_shows_its_help(tmp_path: Path, group: str) -> None:
    answer = call_e3(group, cwd=tmp_path)
    assert f"Usage: e3 {group}" in answer.stdout
    assert answer.returncode == 2


@pytest.mark.parametrize("group", ["queue", "db", "workflow"])
def test_a_group_without_a_command_says_no_empty_sentence(tmp_path: Path, group: str) -> None:
    assert call_e3(group, cwd=tmp_path).stderr == ""


@pytest.mark.parametrize(
    "command",
    [["queue", "set-priority", "knight.yaml", "soon"], ["queue", "ls", "--status", "asleep"]],
    ids=["number", "status"],
)
def test_a_wrong_value_is_said_in_words_of_this_program(tmp_path: Path, command: list[str]) -> None:
    said = call_e3(*command, cwd=tmp_path).stderr
    assert "Value error" not in said
    assert "Input should be" not in said


@pytest.mark.parametrize(
    "command",
    [["queue", "ls"], ["show", "x"], ["retry", "x"], ["cancel", "x"], ["queue", "set-priority", "x", "1"]],
    ids=" ".join,
)
def test_without_a_database_it_is_one_line_and_none_is_made(tmp_path: Path, command: list[str]) -> None:
    answer = call_e3(*command, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "there is no database" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_add_without_a_workspace_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    answer = call_e3("add", str(elsewhere(tmp_path, "knight.yaml")), cwd=tmp_path / "here")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "there is no workspace in" in answer.stderr
    assert "e3 init" in answer.stderr
    assert list((tmp_path / "here").iterdir()) == []
